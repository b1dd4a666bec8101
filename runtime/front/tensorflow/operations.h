// Registers libhvd's operations and kernels with TensorFlow.
#pragma once

#include <string>

namespace hvd::front::tf {

// Registers all of them. find_api() must have succeeded.
bool register_operations(std::string& error);

}  // namespace hvd::front::tf

// The operations and kernels that TensorFlow gets to know.
#pragma once

#include <string>

namespace hvd::front::tf {

// Registers all of them. find_api() has succeeded.
bool register_operations(std::string& error);

}  // namespace hvd::front::tf

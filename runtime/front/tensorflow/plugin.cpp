// libhvd_tensorflow.so: tf.load_op_library() loads it, and TensorFlow then knows our operations.

#include <string>

#include <hvd/hvd.h>

#include "runtime/front/tensorflow/operations.h"
#include "runtime/front/tensorflow/tf_abi.h"

namespace hvd::front::tf {

namespace {

// What loading came to. A constructor cannot fail, so Python asks for it.
std::string& load_error() {
  static auto* const error = new std::string;
  return *error;
}

// While TensorFlow watches for operations that are registered.
__attribute__((constructor)) void load() {
  if (find_api(load_error())) {
    register_operations(load_error());
  }
}

}  // namespace

// Empty, or why the operations are not there.
extern "C" HVD_API const char* hvd_tensorflow_error() {
  return load_error().c_str();
}

}  // namespace hvd::front::tf

// This file is the entry of libhvd_tensorflow.so, which tf.load_op_library() loads to register our operations.

#include <string>

#include <hvd/hvd.h>

#include "runtime/front/tensorflow/operations.h"
#include "runtime/front/tensorflow/tf_abi.h"

namespace hvd::front::tf {

namespace {

// The error of loading, if any. A constructor cannot fail, so Python asks for it.
std::string& load_error() {
  static auto* const error = new std::string;
  return *error;
}

// Runs while TensorFlow loads the library, because only then it records the operations that are registered.
__attribute__((constructor)) void load() {
  if (find_api(load_error())) {
    register_operations(load_error());
  }
}

}  // namespace

// Returns an empty text, or the reason why the operations are not there.
extern "C" HVD_API const char* hvd_tensorflow_error() {
  return load_error().c_str();
}

}  // namespace hvd::front::tf

#include <dlfcn.h>

#include "runtime/front/tensorflow/tf_abi.h"

namespace hvd::front::tf {

Api api = {};

bool find_api(std::string& error) {
  // Found by its SONAME, which needs no path. Python has loaded it already, but without making its symbols global.
#ifdef __APPLE__
  const char* const name = "libtensorflow_framework.2.dylib";
#else
  const char* const name = "libtensorflow_framework.so.2";
#endif
  void* const library = ::dlopen(name, RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) {
    error = std::string(name) + " is not loaded in this process: import tensorflow (2.16 or later) first";
    return false;
  }
  // The handle stays open: the functions are used until the process ends.
#define HVD_TF_FIND(result, function, parameters)                                                                  \
  api.function = reinterpret_cast<result(*) parameters>(::dlsym(library, "TF_" #function));                        \
  if (api.function == nullptr) {                                                                                   \
    error = "this TensorFlow has no function TF_" #function ": horovod.tensorflow needs TensorFlow 2.13 or later"; \
    return false;                                                                                                  \
  }
  HVD_TF_FUNCTIONS(HVD_TF_FIND)
#undef HVD_TF_FIND
  return true;
}

}  // namespace hvd::front::tf

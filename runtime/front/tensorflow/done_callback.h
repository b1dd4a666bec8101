// What an asynchronous kernel calls when it is done, kept beyond the kernel's own return.
#pragma once

#include <cstddef>

namespace hvd::front::tf {

// TensorFlow hands a kernel the address of a std::function that lies on the stack of the thread which calls the kernel,
// and so is gone when the kernel has returned. Therefore the object is copied, in libstdc++'s layout. Where it does not
// lie on that stack (a TensorFlow that has repaired this) it is used as it is.
class DoneCallback {
 public:
  // Within the kernel's call.
  explicit DoneCallback(void* done);
  DoneCallback(const DoneCallback&) = delete;
  DoneCallback& operator=(const DoneCallback&) = delete;
  // Only after run(), or when the kernel has not returned.
  ~DoneCallback();

  // Whether run() may come after the kernel has returned; if not, the kernel has to wait.
  bool outlives_kernel() const { return outlives_; }

  // Once. The kernel's context is not to be used afterwards.
  void run();

 private:
  // std::function<void()> of libstdc++, which has not changed since GCC 4.
  struct Function {
    alignas(std::max_align_t) unsigned char storage[16];
    bool (*manage)(void* to, const void* from, int operation);
    void (*invoke)(const void*);
  };

  void* done_;
  Function copy_ = {};
  bool has_copy_ = false;
  bool outlives_ = false;
};

}  // namespace hvd::front::tf

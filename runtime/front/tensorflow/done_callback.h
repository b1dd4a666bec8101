// DoneCallback is the function that an asynchronous kernel calls when it is done. This class keeps it valid after the
// kernel has returned.
#pragma once

#include <cstddef>

namespace hvd::front::tf {

// TensorFlow hands a kernel the address of a std::function on the stack of the thread that calls the kernel. It is gone
// when the kernel has returned. So the object is copied, using libstdc++'s layout. If it does not lie on that stack (in
// a TensorFlow that has fixed this), it is used as it is.
class DoneCallback {
 public:
  // Must be constructed during the kernel's call.
  explicit DoneCallback(void* done);
  DoneCallback(const DoneCallback&) = delete;
  DoneCallback& operator=(const DoneCallback&) = delete;
  // Must be destroyed only after run(), or while the kernel has not returned.
  ~DoneCallback();

  // True if run() may come after the kernel has returned; if not, the kernel has to wait.
  bool outlives_kernel() const { return outlives_; }

  // Must be called only once. The kernel's context must not be used afterwards.
  void run();

 private:
  // The layout of libstdc++'s std::function<void()>, which has not changed since GCC 4.
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

// Fence is the wrapper around every function of hvd.h. It lets no exception out, and turns a failure into a status and
// the text of hvd_last_error().
//
// Thread: any; each thread has its own text.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "hvd/hvd.h"
#include "runtime/abi/context.h"
#include "runtime/base/result.h"

namespace hvd {

// The text of this thread's last failure, for hvd_last_error.
const std::string& last_error();

// Stores the text, and returns the code as a status.
hvd_status fail(Code code, const char* text) noexcept;
hvd_status status_of(const Result<void>& result);

// Makes the error of a missing argument: "hvd_enqueue: op is NULL".
Error missing(const char* argument);

// Returns the caller's context, whose lifetime is the caller's responsibility, or the process's default. It is kInvalid
// inside a callback, because the callback's thread holds the engine's locks or blocks the rest of the job.
Result<std::shared_ptr<hvd_ctx>> resolve(hvd_ctx* ctx);

// While an object of this class exists, its thread is in a callback of the program.
class InCallback {
 public:
  InCallback();
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

  [[nodiscard]] static bool is_here();

 private:
  const bool was_here_;
};

// Returns kInvalid inside a callback.
Result<void> refuse_in_callback();

// Runs the body of one call; an exception (of the standard library, or a defect) becomes a status.
template <typename Body>
hvd_status fence(Body body) noexcept {
  try {
    return status_of(body());
  } catch (const std::bad_alloc&) {
    return fail(Code::kResource, "out of memory");
  } catch (const std::exception& e) {
    return fail(Code::kInternal, e.what());
  } catch (...) {
    return fail(Code::kInternal, "an exception of unknown type");
  }
}

}  // namespace hvd

// What every function of hvd.h stands on: no exception leaves, a failure becomes a status and this thread's last text.
//
// Thread: any; the text is each thread's own.
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

// Of this thread's last failure, for hvd_last_error.
const std::string& last_error();

// Notes the text; the code as a status.
hvd_status fail(Code code, const char* text) noexcept;
hvd_status status_of(const Result<void>& result);

// "hvd_enqueue: op is NULL"
Error missing(const char* argument);

// The caller's context (whose life is the caller's business), or the process's. kInvalid inside a callback: it runs on
// a thread that has the engine's locks, or that the rest of the job waits for.
Result<std::shared_ptr<hvd_ctx>> resolve(hvd_ctx* ctx);

// While it exists this thread is in a callback of the program's.
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

// kInvalid inside a callback.
Result<void> refuse_in_callback();

// Runs one call's body; an exception (of the standard library, or a defect) becomes a status.
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

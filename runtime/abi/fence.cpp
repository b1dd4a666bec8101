#include "runtime/abi/fence.h"

#include "runtime/abi/default_context.h"

namespace hvd {

namespace {

std::string& own_error() {
  thread_local std::string text;
  return text;
}

thread_local bool is_in_callback = false;

}  // namespace

const std::string& last_error() {
  return own_error();
}

hvd_status fail(Code code, const char* text) noexcept {
  try {
    own_error() = text;
  } catch (...) {
    own_error().clear();  // there is no memory for the text; the status still reports the failure
  }
  return static_cast<hvd_status>(code);
}

hvd_status status_of(const Result<void>& result) {
  return result.ok() ? HVD_OK : fail(result.error().code(), result.error().message().c_str());
}

Error missing(const char* argument) {
  return Error(Code::kInvalid, std::string(argument) + " is NULL");
}

InCallback::InCallback() : was_here_(is_in_callback) {
  is_in_callback = true;
}

InCallback::~InCallback() {
  is_in_callback = was_here_;
}

bool InCallback::is_here() {
  return is_in_callback;
}

Result<void> refuse_in_callback() {
  return InCallback::is_here() ? Error(Code::kInvalid,
                                       "a callback of hvd_on_done calls the library; let it tell a thread of the "
                                       "program's, which may")
                               : Result<void>();
}

Result<std::shared_ptr<hvd_ctx>> resolve(hvd_ctx* ctx) {
  HVD_TRY(refuse_in_callback());
  if (ctx != nullptr) {
    return std::shared_ptr<hvd_ctx>(std::shared_ptr<void>(), ctx);
  }
  auto context = DefaultContext::instance().get();
  if (context == nullptr) {
    return Error(Code::kNotInitialized, "Horovod has not been initialized; use hvd.init().");
  }
  return context;
}

}  // namespace hvd

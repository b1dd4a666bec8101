// Result and Error are how every function here reports failure. An error is a value, because it must cross a C
// interface, a process boundary (agent frames), a thread boundary (engine to waiter) and a fork; no exception can cross
// these.
//
// Value type; an Error is copyable and may be passed to any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "runtime/base/check.h"

namespace hvd {

// The numbers are those of hvd_status in hvd.h and are sent between processes; never renumber them.
enum class Code : std::int32_t {
  kInvalid = 1,
  kNotFound = 2,
  kUnreachable = 3,
  kAuth = 4,
  kTimeout = 5,
  kProtocol = 6,
  kLostPeer = 7,
  kCancelled = 8,
  kResource = 9,
  kSystem = 10,
  kInternal = 11,
  kNotInitialized = 12,
  kMismatch = 13,
};

class [[nodiscard]] Error {
 public:
  Error(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  // Makes the error of a failed system call: `what` says who and which call, and errno's text is added. Call it before
  // errno can change.
  static Error from_errno(std::string what);
  static Error from_errno(std::string what, int sys_errno);

  [[nodiscard]] Code code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] int sys_errno() const { return sys_errno_; }

  // Returns "context: message"; callers on the way up add what they were doing.
  [[nodiscard]] Error with_context(const std::string& context) const {
    Error copy = *this;
    copy.message_ = context + ": " + message_;
    return copy;
  }

 private:
  Code code_;
  int sys_errno_ = 0;
  std::string message_;
};

// Result is a value or an Error. Reading the wrong one is a defect of ours and aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  [[nodiscard]] T& value() & {
    HVD_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] const T& value() const& {
    HVD_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] T&& value() && {
    HVD_CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  [[nodiscard]] const Error& error() const {
    HVD_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return error_.index() == 0; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const {
    HVD_CHECK(!ok());
    return *std::get_if<1>(&error_);
  }

 private:
  std::variant<std::monostate, Error> error_;
};

}  // namespace hvd

#define HVD_CONCAT_INNER(a, b) a##b
#define HVD_CONCAT(a, b) HVD_CONCAT_INNER(a, b)

// Returns the error of `expr` from the enclosing function, if it has one.
#define HVD_TRY(expr)                                         \
  do {                                                        \
    if (auto hvd_try_result = (expr); !hvd_try_result.ok()) { \
      return hvd_try_result.error();                          \
    }                                                         \
  } while (false)

// Assigns the value of expr to lhs, or returns its error from the enclosing function. It is several statements, so it
// cannot be the body of an unbraced `if`.
#define HVD_TRY_ASSIGN(lhs, expr) HVD_TRY_ASSIGN_AS(HVD_CONCAT(hvd_try_, __LINE__), lhs, expr)
#define HVD_TRY_ASSIGN_AS(tmp, lhs, expr) \
  auto tmp = (expr);                      \
  if (!tmp.ok()) {                        \
    return tmp.error();                   \
  }                                       \
  lhs = std::move(tmp).value()

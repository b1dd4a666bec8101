// Database: one SQLite file, as values. The only place that knows SQLite; what the tables mean is store.h's.
//
// Thread: one at a time. Several processes may have the same file open: a write waits for the others' up to
// kBusyTime, and is then an error that says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/result.h"

struct sqlite3;

namespace hvd::launch {

using SqlValue = std::variant<std::monostate, std::int64_t, std::string>;  // nothing: NULL

class SqlRow {
 public:
  explicit SqlRow(std::vector<SqlValue> values) : values_(std::move(values)) {}

  [[nodiscard]] bool is_null(std::size_t column) const {
    return std::holds_alternative<std::monostate>(values_[column]);
  }
  // 0 and "" where there is nothing, or another type.
  [[nodiscard]] std::int64_t integer(std::size_t column) const {
    const auto* value = std::get_if<std::int64_t>(&values_[column]);
    return value == nullptr ? 0 : *value;
  }
  [[nodiscard]] std::string text(std::size_t column) const {
    const auto* value = std::get_if<std::string>(&values_[column]);
    return value == nullptr ? "" : *value;
  }

 private:
  std::vector<SqlValue> values_;
};

class Database {
 public:
  // Makes the file, readable by the user alone, where there is none.
  static Result<Database> open(const std::string& path);

  // Runs one statement; `arguments` are its "?". The rows that it gives.
  Result<std::vector<SqlRow>> query(std::string_view statement, const std::vector<SqlValue>& arguments = {});
  // The same for one that gives none: how many rows it has changed.
  Result<int> change(std::string_view statement, const std::vector<SqlValue>& arguments = {});
  // Several statements without arguments.
  Result<void> run(const std::string& script);
  [[nodiscard]] std::int64_t last_id() const;

  // All that `work` does, or nothing: an error of its undoes it. No other process writes meanwhile.
  template <typename Work>
  auto in_transaction(const Work& work) -> std::invoke_result_t<Work> {
    HVD_TRY(run("BEGIN IMMEDIATE"));
    auto outcome = work();
    if (!outcome.ok()) {
      static_cast<void>(run("ROLLBACK"));
      return outcome;
    }
    if (auto done = run("COMMIT"); !done.ok()) {
      static_cast<void>(run("ROLLBACK"));
      return done.error();
    }
    return outcome;
  }

 private:
  struct Closer {
    void operator()(sqlite3* connection) const;
  };

  Database(std::string path, sqlite3* connection) : path_(std::move(path)), connection_(connection) {}
  [[nodiscard]] Error failure(int code) const;
  Result<void> begin_log();

  std::string path_;
  std::unique_ptr<sqlite3, Closer> connection_;
};

}  // namespace hvd::launch

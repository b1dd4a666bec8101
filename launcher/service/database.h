// Database is one SQLite file; statements take and return values. No other code uses SQLite; job_store.h says what the
// tables mean.
//
// Thread: one at a time. Several processes may have the same file open. A write waits for the writes of others, for
// kPatience at most unless set_patience() says otherwise, and then fails with an error that says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

struct sqlite3;

namespace hvd::launch {

using SqlValue = std::variant<std::monostate, std::int64_t, std::string>;  // nothing: NULL
inline SqlValue sql_number(int value) {
  return static_cast<std::int64_t>(value);
}

class SqlRow {
 public:
  explicit SqlRow(std::vector<SqlValue> values) : values_(std::move(values)) {}

  [[nodiscard]] bool is_null(std::size_t column) const {
    return std::holds_alternative<std::monostate>(values_[column]);
  }
  // Returns 0 or "" for NULL or for a value of another type.
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
  // Many jobs may be submitted and end at once, and each write takes some milliseconds.
  static constexpr Duration kPatience = std::chrono::seconds(30);

  // Creates the file, readable by the user alone, if it does not exist.
  static Result<Database> open(const std::string& path);

  // Sets how long a statement waits for other processes; zero, for a caller that may not block: not at all.
  void set_patience(Duration patience);

  // Runs one statement and returns its rows; `arguments` replace its "?".
  Result<std::vector<SqlRow>> query(std::string_view statement, const std::vector<SqlValue>& arguments = {});
  // Runs one statement that returns no rows, and returns how many rows it has changed.
  Result<int> change(std::string_view statement, const std::vector<SqlValue>& arguments = {});
  // Runs several statements without arguments.
  Result<void> run(const std::string& script);
  [[nodiscard]] std::int64_t last_id() const;
  // Returns a number that is another one when this process or another has changed something since.
  Result<std::int64_t> version();

  // Runs `work` in a transaction, which an error of `work` rolls back. No other process writes meanwhile.
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

  Database(std::string path, sqlite3* connection);
  [[nodiscard]] Error failure(int code) const;
  Result<void> begin_log();

  std::string path_;
  Duration patience_;
  std::unique_ptr<sqlite3, Closer> connection_;
};

}  // namespace hvd::launch

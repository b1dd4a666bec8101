#include "launcher/service/database.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <sqlite3.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

struct Finalizer {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalizer>;

bool bind(sqlite3_stmt* statement, int place, const SqlValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    return sqlite3_bind_int64(statement, place, *number) == SQLITE_OK;
  }
  if (const auto* text = std::get_if<std::string>(&value)) {
    // The text outlives the statement, so SQLite need not copy it; nullptr as its destructor means SQLITE_STATIC.
    return sqlite3_bind_text(statement, place, text->data(), static_cast<int>(text->size()), nullptr) == SQLITE_OK;
  }
  return sqlite3_bind_null(statement, place) == SQLITE_OK;
}

SqlRow row_of(sqlite3_stmt* statement) {
  std::vector<SqlValue> values;
  const int columns = sqlite3_column_count(statement);
  values.reserve(static_cast<std::size_t>(columns));
  for (int column = 0; column < columns; ++column) {
    switch (sqlite3_column_type(statement, column)) {
      case SQLITE_NULL:
        values.emplace_back();
        break;
      case SQLITE_INTEGER:
        values.emplace_back(static_cast<std::int64_t>(sqlite3_column_int64(statement, column)));
        break;
      default:
        // A blob and a text are both read as bytes.
        const void* bytes = sqlite3_column_blob(statement, column);
        const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, column));
        values.emplace_back(std::string(static_cast<const char*>(bytes), bytes == nullptr ? 0 : size));
    }
  }
  return SqlRow(std::move(values));
}

}  // namespace

void Database::Closer::operator()(sqlite3* connection) const {
  sqlite3_close_v2(connection);
}

Database::Database(std::string path, sqlite3* connection)
    : path_(std::move(path)), patience_(kPatience), connection_(connection) {}

void Database::set_patience(Duration patience) {
  patience_ = patience;
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  sqlite3_busy_timeout(connection_.get(), static_cast<int>(milliseconds));
}

Error Database::failure(int code) const {
  const std::string where = "the jobs' records (" + path_ + ")";
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Error(Code::kResource,
                   where + ": another hvdrun " +
                       (patience_ == Duration::zero() ? std::string("writes them just now")
                                                      : "has held them for " + duration_text(patience_)) +
                       "; try again, or see who has them with: fuser " + path_ +
                       "; if nobody has, the file system has no locks: set XDG_STATE_HOME to another");
    case SQLITE_FULL:
      return Error(Code::kResource, where + ": the disk is full; free some space, or set XDG_STATE_HOME to another");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return Error(Code::kResource, where + ": cannot be written (" + sqlite3_errmsg(connection_.get()) +
                                        "); make their directory writable, or set XDG_STATE_HOME to one that is");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Error(Code::kResource, where + ": this is no database that can be read (" +
                                        sqlite3_errmsg(connection_.get()) + "); move it away to begin again");
    case SQLITE_IOERR: {
      const int number = sqlite3_system_errno(connection_.get());
      const std::string what = Error::from_errno(where + ": cannot be read or written", number).message();
      return Error(Code::kResource, what +
                                        "; see whether the disk has space, and locks and shared memory, which a "
                                        "network file system may not; or set XDG_STATE_HOME to another");
    }
    default:
      return Error(Code::kInternal, where + ": " + sqlite3_errmsg(connection_.get()) +
                                        "; if another program has written there, move it away to begin again");
  }
}

Result<Database> Database::open(const std::string& path) {
  // Create the file here, since SQLite would use the umask's mode for it. An existing file is not opened, because
  // closing it would release the locks that another connection of this process holds on it.
  const bool is_there = ::access(path.c_str(), F_OK) == 0;
  if (const Fd made(is_there ? -1 : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
      !is_there && !made.is_open()) {
    return Error(Code::kResource, Error::from_errno("the jobs' records (" + path + ") cannot be written").message() +
                                      "; make their directory writable, or set XDG_STATE_HOME to one that is");
  }
  sqlite3* connection = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &connection, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(path, connection);
  if (code != SQLITE_OK) {
    return connection == nullptr ? Error(Code::kResource, "no memory for " + path) : database.failure(code);
  }
  sqlite3_extended_result_codes(connection, 1);
  database.set_patience(kPatience);
  // With the write-ahead log, readers do not wait for a writer. FULL: what is committed survives a crash of the
  // machine.
  HVD_TRY(database.begin_log());
  HVD_TRY(database.run("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON"));
  return database;
}

Result<void> Database::run(const std::string& script) {
  const int code = sqlite3_exec(connection_.get(), script.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Result<void>() : Result<void>(failure(code));
}

// SQLite does not wait when several processes change a new file's journal mode at once, since they would wait for each
// other. So this function retries.
Result<void> Database::begin_log() {
  constexpr auto kBetween = std::chrono::milliseconds(5);
  const Deadline deadline = Deadline::after(patience_);
  for (;;) {
    const int code = sqlite3_exec(connection_.get(), "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
    if (code == SQLITE_OK) {
      return {};
    }
    if ((code & 0xff) != SQLITE_BUSY || deadline.has_passed()) {
      return failure(code);
    }
    std::this_thread::sleep_for(kBetween);
  }
}

Result<std::vector<SqlRow>> Database::query(std::string_view statement, const std::vector<SqlValue>& arguments) {
  sqlite3_stmt* made = nullptr;
  int code =
      sqlite3_prepare_v2(connection_.get(), statement.data(), static_cast<int>(statement.size()), &made, nullptr);
  const Statement prepared(made);
  if (code != SQLITE_OK) {
    return failure(code);
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!bind(prepared.get(), static_cast<int>(i) + 1, arguments[i])) {
      return failure(SQLITE_ERROR);
    }
  }
  std::vector<SqlRow> rows;
  while ((code = sqlite3_step(prepared.get())) == SQLITE_ROW) {
    rows.push_back(row_of(prepared.get()));
  }
  if (code != SQLITE_DONE) {
    return failure(code);
  }
  return rows;
}

Result<int> Database::change(std::string_view statement, const std::vector<SqlValue>& arguments) {
  HVD_TRY(query(statement, arguments));
  return sqlite3_changes(connection_.get());
}

std::int64_t Database::last_id() const {
  return sqlite3_last_insert_rowid(connection_.get());
}

Result<std::int64_t> Database::version() {
  HVD_TRY_ASSIGN(const auto rows, query("PRAGMA data_version"));  // it counts the changes of others only
  return rows.front().integer(0) + sqlite3_total_changes(connection_.get());
}

}  // namespace hvd::launch

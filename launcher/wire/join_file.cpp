#include "launcher/wire/join_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "runtime/base/fd.h"
#include "runtime/base/replace_file.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::string_view kFirstLine = "hvdrun join 1";
constexpr std::size_t kMostAddresses = 256;

// `is_any_users`: it is only read, and followed by nobody.
Result<JoinFile> read_file(const std::string& path, bool is_any_users) {
  const auto refuse = [&path](const std::string& why) { return Error(Code::kInvalid, path + ": " + why); };
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));  // a pipe must not keep us waiting
  struct stat facts{};
  if (!fd.is_open() || ::fstat(fd.get(), &facts) != 0) {
    const int number = errno;
    return Error(Code::kInvalid, Error::from_errno("cannot read " + path, number).message() +
                                     (number == ENOENT ? "; the job has ended, or has not begun" : ""));
  }
  if (!S_ISREG(facts.st_mode)) {
    return refuse("it is no file");
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return refuse("it is open to others; only its owner may read it: chmod 600");
  }
  if (!is_any_users && facts.st_uid != ::geteuid() && facts.st_uid != 0) {
    return refuse("it belongs to user " + std::to_string(facts.st_uid) + ", whose job would start programs as user " +
                  std::to_string(::geteuid()) + "; run hvdrun join as that user, or copy the file");
  }
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t got = 1; got > 0 && text.size() <= kLongestJoinFile;) {
    got = ::read(fd.get(), part.data(), part.size());
    if (got < 0) {
      return refuse(Error::from_errno("read").message());
    }
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  auto file = parse_join_file(text);
  return file.ok() ? std::move(file) : Result<JoinFile>(refuse(file.error().message()));
}

}  // namespace

std::string join_file_text(const JoinFile& file) {
  std::string text = std::string(kFirstLine) + "\njob " + file.job_id + "\nversion " + file.version + "\nkey " +
                     call_key_text(file.key) + "\nstack " + file.place.stack + "\n";
  for (const std::string& address : file.place.addresses) {
    text += "address " + address + "\n";
  }
  return text;
}

Result<JoinFile> parse_join_file(std::string_view text) {
  const Error refused(Code::kInvalid, "it is no file that hvdrun --join-file has written");
  if (take_until(text, '\n') != kFirstLine) {
    return refused;
  }
  JoinFile file;
  bool has_key = false;
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string_view name = line.substr(0, space);
    const std::string value(line.substr(std::min(space + 1, line.size())));
    if (name == "job") {
      file.job_id = value;
    } else if (name == "version") {
      file.version = value;
    } else if (name == "stack") {
      file.place.stack = value;
    } else if (name == "address" && file.place.addresses.size() < kMostAddresses) {
      file.place.addresses.push_back(value);
    } else if (name == "key") {
      const auto key = parse_call_key(value);
      if (!key.ok()) {
        return refused;
      }
      file.key = key.value();
      has_key = true;
    } else {
      return refused;
    }
  }
  const bool is_whole = has_key && !file.job_id.empty() && !file.version.empty() && !file.place.stack.empty() &&
                        !file.place.addresses.empty();
  return is_whole ? Result<JoinFile>(std::move(file)) : Result<JoinFile>(refused);
}

Result<void> write_join_file(const std::string& path, const JoinFile& file) {
  const auto written = replace_file(path, join_file_text(file), 0600);
  return written.ok() ? Result<void>()
                      : Result<void>(Error(Code::kInvalid, "--join-file: " + written.error().message()));
}

Result<JoinFile> read_join_file(const std::string& path) {
  return read_file(path, false);
}

void remove_join_file(const std::string& path, const std::string& job_id) {
  if (const auto file = read_file(path, true); file.ok() && file.value().job_id == job_id) {
    ::unlink(path.c_str());
  }
}

}  // namespace hvd::launch

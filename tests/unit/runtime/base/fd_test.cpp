#include "runtime/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include <doctest/doctest.h>

namespace hvd::fd_test {
namespace {
bool is_open_number(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}
bool is_close_on_exec(int fd) {
  return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}
}  // namespace

TEST_CASE("a descriptor is closed once, by its last owner") {
  int number = -1;
  {
    auto pipe = make_pipe();
    REQUIRE(pipe.ok());
    Fd first = std::move(pipe.value().read_end);
    number = first.get();
    Fd second = std::move(first);
    CHECK_FALSE(first.is_open());  // NOLINT(bugprone-use-after-move): what a move leaves is part of the contract
    CHECK(is_open_number(number));
    second = Fd();
    CHECK_FALSE(is_open_number(number));
  }
  Fd kept(::dup(STDERR_FILENO));
  number = kept.release();
  CHECK_FALSE(kept.is_open());
  CHECK(is_open_number(number));
  const Fd owner(number);
}

TEST_CASE("everything made here is close-on-exec") {
  const auto pipe = make_pipe();
  const auto pair = make_socket_pair();
  const auto copy = duplicate(STDERR_FILENO);
  REQUIRE((pipe.ok() && pair.ok() && copy.ok()));
  for (const int fd : {pipe.value().read_end.get(), pipe.value().write_end.get(), pair.value().first.get(),
                       pair.value().second.get(), copy.value().get()}) {
    CHECK(is_close_on_exec(fd));
  }
}

TEST_CASE("non-blocking can be switched on and off") {
  const auto pipe = make_pipe();
  const int fd = pipe.value().read_end.get();
  REQUIRE(set_nonblocking(fd).ok());
  CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  REQUIRE(set_nonblocking(fd, false).ok());
  CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
  CHECK_FALSE(set_nonblocking(-1).ok());
}

TEST_CASE("all is written to a non-blocking descriptor too, as its reader takes it") {
  auto pipe = make_pipe();
  REQUIRE(pipe.ok());
  REQUIRE(set_nonblocking(pipe.value().write_end.get()).ok());
  const std::string sent(1U << 20U, 'x');  // more than a pipe holds
  std::size_t received = 0;
  std::thread reader([&] {
    std::array<char, 65536> buffer{};
    for (ssize_t got = 1; got > 0; received += static_cast<std::size_t>(got)) {
      got = ::read(pipe.value().read_end.get(), buffer.data(), buffer.size());
    }
  });
  CHECK(write_all(pipe.value().write_end.get(), sent));
  pipe.value().write_end.reset();
  reader.join();
  CHECK(received == sent.size());
}

TEST_CASE("a write that fails says why in errno") {
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  CHECK_FALSE(write_all(full.get(), "text"));
  CHECK(errno == ENOSPC);
}

TEST_CASE("a file is read whole, or its first line; one that cannot be read is an empty text") {
  const std::string path = "fd_test." + std::to_string(::getpid());
  const std::string text = "first\n" + std::string(100'000, 'x');
  {
    const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    REQUIRE(write_all(file.get(), text));
  }
  CHECK(text_of_file(path) == text);
  CHECK(first_line_of_file(path) == "first");
  ::unlink(path.c_str());
  CHECK(text_of_file(path).empty());
  CHECK(first_line_of_file(path).empty());
  CHECK(text_of_file("/").empty());
}

}  // namespace hvd::fd_test

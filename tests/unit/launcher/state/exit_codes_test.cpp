#include "launcher/state/exit_codes.h"

#include <errno.h>

#include <doctest/doctest.h>

namespace hvd::launch::exit_codes_test {

TEST_CASE("one table says which exit code an error has") {
  CHECK(exit_code_of(Error(Code::kInvalid, "no such flag")) == 240);
  CHECK(exit_code_of(Error(Code::kNotFound, "no such job")) == 240);
  CHECK(exit_code_of(Error(Code::kUnreachable, "refused")) == 241);
  CHECK(exit_code_of(Error(Code::kTimeout, "no answer")) == 241);
  CHECK(exit_code_of(Error(Code::kAuth, "its host key has changed")) == 241);
  CHECK(exit_code_of(Error(Code::kResource, "no memory")) == 242);
  CHECK(exit_code_of(Error(Code::kProtocol, "another version")) == 242);
  CHECK(exit_code_of(Error(Code::kCancelled, "killed")) == 242);
  CHECK(exit_code_of(Error(Code::kLostPeer, "gone")) == 243);
  CHECK(exit_code_of(Error(Code::kInternal, "a defect")) == 245);
}

TEST_CASE("a file that cannot be used as it is was named wrongly; another failed call keeps the ranks from starting") {
  const auto failed_with = [](int number) {
    errno = number;
    return Error::from_errno("cannot open '/data'");
  };
  CHECK(exit_code_of(failed_with(EACCES)) == 240);
  CHECK(exit_code_of(failed_with(ENOTDIR)) == 240);
  CHECK(exit_code_of(failed_with(EAGAIN)) == 242);
}

TEST_CASE("a program that should have started the ranks is missing on the machine, not on the command line") {
  CHECK(exit_code_of_start(Error(Code::kNotFound, "no such program: 'srun'")) == 242);
  CHECK(exit_code_of_start(Error(Code::kInvalid, "no such partition")) == 240);
  CHECK(exit_code_of_start(Error(Code::kLostPeer, "srun has ended")) == 243);
}

}  // namespace hvd::launch::exit_codes_test

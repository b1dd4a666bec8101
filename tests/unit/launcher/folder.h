// A folder of a test's own, gone with it.
#pragma once

#include <filesystem>
#include <string>

#include <doctest/doctest.h>
#include <stdlib.h>

namespace hvd::test {

struct Folder {
  Folder() {
    std::string name = "/tmp/hvd-service-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path;
};

}  // namespace hvd::test

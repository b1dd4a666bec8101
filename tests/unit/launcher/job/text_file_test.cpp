#include "launcher/job/text_file.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <stdlib.h>

namespace hvd::launch::text_file_test {

TEST_CASE("an empty file is read as one, and what cannot be read is named with its reason") {
  std::string folder = "/tmp/hvd-test-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const std::string file = folder + "/file";
  {
    const std::ofstream made(file);
  }
  CHECK(read_text_file(file, "the thing").value().empty());
  std::ofstream(file) << std::string(100'000, 'x') << "end";
  CHECK(read_text_file(file, "the thing").value().ends_with("xend"));
  CHECK(read_text_file(file, "the thing", 70'000).value().size() == 70'000);
  const auto missing = read_text_file(folder + "/none", "the thing");
  CHECK(missing.error().message() == "cannot read the thing " + folder + "/none: No such file or directory");
  CHECK(read_text_file(folder, "the thing").error().message().ends_with("Is a directory"));
  std::filesystem::remove_all(folder);
}

}  // namespace hvd::launch::text_file_test

// launcher/process/own_process.h: by which name this process knows its working directory.
#include "launcher/process/own_process.h"

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "tests/unit/launcher/folder.h"

namespace hvd::own_process_test {
namespace {

namespace fs = std::filesystem;

// Enters a folder, and goes back at the end.
class Inside {
 public:
  explicit Inside(const std::string& folder) { fs::current_path(folder); }
  ~Inside() { fs::current_path(before_); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const fs::path before_ = fs::current_path();
};

}  // namespace

TEST_CASE("the working directory has the name of $PWD where that is one of it, and else the file system's") {
  const test::Folder folder;
  const std::string top = fs::canonical(folder.path).string();
  const std::string own = top + "/export/you/project";
  fs::create_directories(own);
  fs::create_directories(top + "/export/you/other");
  fs::create_symlink("export/you", top + "/home");
  const Inside inside(own);
  struct Row {
    std::string named;
    bool counts;
  };
  for (const Row& row : {Row{top + "/home/project", true}, Row{own, true}, Row{top + "/home/other", false},
                         Row{top + "/none", false}, Row{top + "/home/../you/project", false},
                         Row{top + "/home/./project", false}, Row{top + "//home/project", false},
                         Row{top + "/home/project/", false}, Row{".", false}, Row{"", false}, Row{"/", false}}) {
    CAPTURE(row.named);
    CHECK(working_directory({"PWD=" + row.named}).value() == (row.counts ? row.named : own));
  }
  CHECK(working_directory({}).value() == own);
  fs::current_path("/");
  CHECK(working_directory({"PWD=/"}).value() == "/");
}

}  // namespace hvd::own_process_test

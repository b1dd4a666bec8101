#include "cli/options/out_file.h"

#include <unistd.h>

namespace hvd::cli {

Result<void> check_out_file(const std::string& option, const std::string& path, const std::string& ending) {
  if (!path.ends_with(ending)) {
    return Error(Code::kInvalid, option + " " + path + ": expected a name that ends in " + ending);
  }
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (::access(folder.c_str(), W_OK) != 0) {
    return Error(Code::kInvalid, Error::from_errno(option + " " + path + ": cannot write into " + folder).message());
  }
  return {};
}

}  // namespace hvd::cli

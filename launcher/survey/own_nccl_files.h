// These are the files on this node in which its administrator and its user have given NCCL's variables values.
#pragma once

#include <string>
#include <vector>

namespace hvd::launch {

// Returns the names of the variables in /etc/nccl.conf, and in NCCL_CONF_FILE or else ~/.nccl.conf, of `environment`
// (NCCL's documentation, "Environment Variables"). `root` stands before /etc: it is "" except in tests.
std::vector<std::string> own_nccl_names(const std::vector<std::string>& environment, const std::string& root = "");

}  // namespace hvd::launch

// OwnNames has the names under which this machine's files know it, beside its host name: other names of /etc/hosts, as
// a cluster's "master", and its full name. No resolver is asked, since DNS may take its time.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace hvd::launch {

class OwnNames {
 public:
  // Reads /etc/hosts and /etc/resolv.conf. A file that cannot be read has no names.
  OwnNames(const std::string& host_name, const std::function<bool(const std::string& address)>& is_own_address);
  // Takes from texts like theirs every name of an address that is this machine's, and the host name's first part with
  // every domain that is searched.
  OwnNames(std::string_view hosts, std::string_view resolver, const std::string& host_name,
           const std::function<bool(const std::string& address)>& is_own_address);

  // Small and capital letters are the same, and so is a full stop at the end.
  [[nodiscard]] bool has(const std::string& name) const;

 private:
  std::set<std::string> names_;  // in small letters
};

}  // namespace hvd::launch

// EngineJob is what an engine gives a job in an allocation: variables, files and programs. It shows what is read from
// them as a line of text.
#pragma once

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "launcher/allocations/allocation.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::test {

using Words = std::vector<std::string>;

struct EngineJob {
  explicit EngineJob(Words environment, std::string host = "n1") {
    here.environment = std::move(environment);
    here.own_names = {std::move(host), "10.0.0.1", "fd00::1"};
  }

  // Writes a file and returns its path.
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder.path + "/" + name) << text;
    return folder.path + "/" + name;
  }
  void add(const std::string& entry) { here.environment.push_back(entry); }
  // Makes a program that prints `text`, and puts its folder in front of PATH.
  void program(const std::string& name, const std::string& text) {
    const std::string path = file(name, "#!/bin/sh\n" + text + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    add("PATH=" + folder.path + ":/usr/bin:/bin");
  }

  // Returns "n1:2 n2:1 (VARIABLE)" with " by COMMAND" where one reaches them, the message of an error, or "none".
  [[nodiscard]] std::string said(const std::string& word = "") const {
    const auto found = launch::find_allocation(here, word);
    if (!found.ok()) {
      return found.error().message();
    }
    if (!found.value()) {
      return "none";
    }
    std::string text;
    for (const launch::HostSpec& host : found.value()->hosts) {
      text += host.name + ":" + std::to_string(host.slots) + " ";
    }
    const std::string& rsh = found.value()->rsh;
    return text + "(" + found.value()->slots_from + ")" + (rsh.empty() ? "" : " by " + rsh);
  }
  [[nodiscard]] bool says(const std::string& part) const { return said().find(part) != std::string::npos; }

  Folder folder;
  launch::Surroundings here;
};

}  // namespace hvd::test

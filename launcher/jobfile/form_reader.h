// FormReader reads what both forms of job file have: variables, mounts, paths and limits of elastic jobs, by the same
// rules and with the same errors. What only one form has, its own keys, is read in batchai_form.cpp or native_form.cpp.
#pragma once

#include <cstdlib>
#include <string>

#include "launcher/jobfile/job_file.h"

namespace hvd::launch {

class FormReader {
 public:
  FormReader(const std::string& file, const JobFileOptions& options, Notices& notices)
      : file_(file), options_(options), notices_(notices) {}

  // Reads minNodes and maxNodes; the tool and nodeCount are read before them.
  Result<void> read_elastic(const DocValue& map, JobFile& job) const;
  // Adds a variable or a secret. One without a value has that of hvdrun's environment.
  Result<void> add_variable(JobVariable variable, bool is_secret, JobFile& job) const;
  Result<void> add_mount(Mount mount, JobFile& job) const;
  // Adds the mounts that are only named, somewhere in this value.
  void add_named_mounts(const DocValue& value, JobFile& job) const;
  Result<std::string> written_path(const DocValue& value, const char* what) const;
  // Refuses a script or command that is given as an empty text.
  [[nodiscard]] Result<void> check_starts_something(const Tool& tool) const;
  void note(Position at, const std::string& what) { notices_.push_back(error_at(file_, at, what).message()); }
  [[nodiscard]] Error refuse(Position at, const std::string& what) const { return error_at(file_, at, what); }

 private:
  // Returns the value from hvdrun's environment, for a variable that the file names without a value.
  Result<std::string> inherited(const std::string& name, Position at, const char* why) const;

  const std::string& file_;
  const JobFileOptions& options_;
  Notices& notices_;
};

// Each function reads a whole document of its form. The document has passed check() with the form's schema, so every
// value has the right type.
Result<JobFile> read_batchai(const DocValue& root, FormReader& reader);
Result<JobFile> read_native(const DocValue& root, const FormReader& reader);

// Returns the text of a key; empty: there is none.
std::string text_of(const DocValue& map, const char* key);
// Returns the path of a program or a script, in which ~/ at the beginning means the home that its user has on the node.
std::string program_of(const DocValue& map, const char* key);
std::optional<int> number_of(const DocValue& map, const char* key);
// Reads seconds, 1:30:00, 7.00:00:00, "7 days, 0:00:00", 90m, 1h30m, P7DT1H.
std::optional<Duration> parse_job_duration(std::string_view text);

// Finds names in a job file that lead nowhere: a variable of a directory that the file does not have, and a folder of
// the mount root where nothing is mounted. Both are mostly misspelt. Without a word about it an argument is empty, or a
// model is written to a folder that ends with the job. Returns a notice for each, where it stands first.
Notices lost_names(const DocValue& root, const JobFile& job, const std::string& file);

}  // namespace hvd::launch

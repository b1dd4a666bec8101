#include "tests/fuzz/job_targets.h"

#include <string>

#include "launcher/jobfile/form_reader.h"
#include "launcher/jobfile/job_run.h"
#include "launcher/jobfile/variable_text.h"
#include "runtime/base/text.h"
#include "tests/fuzz/require.h"

namespace hvd::fuzz {
namespace {

// Outside of quotes a shell sees only words and variables, and patterns where these are allowed.
void require_harmless(const std::string& shell_text, std::string_view patterns = "") {
  constexpr std::string_view kHarmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+ ";
  for (std::size_t i = 0; i < shell_text.size(); ++i) {
    if (shell_text[i] == '\'') {
      i = shell_text.find('\'', i + 1);
      require(i != std::string::npos, "a quote ends");
    } else if (shell_text.compare(i, 2, "${") == 0) {
      const std::size_t end = shell_text.find("-}", i);
      require(end != std::string::npos && launch::is_variable_name(shell_text.substr(i + 2, end - i - 2)),
              "only plain variables are expanded");
      i = end + 1;
    } else if (shell_text[i] == '\\') {
      ++i;  // as in '\''
    } else {
      require(shell_text[i] == '"' || kHarmless.find(shell_text[i]) != std::string_view::npos ||
                  patterns.find(shell_text[i]) != std::string_view::npos,
              "what means something to a shell is quoted");
    }
  }
}

void check_document(const Result<launch::DocValue>& document) {
  if (!document.ok()) {
    require_error(document.error());
    require(document.error().message().starts_with("file:"), "an error names its place");
  }
}

// A file that can be read can be planned: all that becomes a path or a name is such.
void check_job_file(std::string_view input, const std::string& file) {
  const auto loaded = launch::parse_job_file(input, file, {"account", {"A=1"}});
  if (!loaded.ok()) {
    require_error(loaded.error());
    require(loaded.error().message().starts_with(file + ":"), "an error names its place");
    return;
  }
  const launch::JobFile& job = loaded.value().job;
  require(launch::is_job_name(job.name), "a job has a name");
  const launch::HostList hosts = {{"a", "", 0, 1}, {"b", "", 0, 1}, {"c", "", 0, 1}};
  const auto layout = job.tool.process_count.value_or(1) > 100 || job.tool.worker_count.value_or(1) > 100
                          ? Result<launch::JobLayout>(Error(Code::kInvalid, "too long for a fuzzer"))
                          : launch::lay_out(job, hosts, 0);
  if (!layout.ok()) {
    return;
  }
  launch::JobRunOptions options;
  options.mounts.root = "/data";
  options.id = "id";
  const auto run = launch::make_job_run(job, layout.value(), options);
  if (!run.ok()) {
    return;
  }
  for (const launch::Mount& mount : run.value().job.mounts) {
    require(launch::is_inner_path(mount.name) && mount.directory.starts_with('/'), "a mount is below the mount root");
  }
  require(run.value().kept_at.find("/../") == std::string::npos, "nothing is kept outside of where it is wanted");
  const std::vector<launch::JobNodeFacts> facts(run.value().layout.nodes.size());
  launch::JobTexts texts("/tmp/agent");
  static_cast<void>(launch::set_up_script(run.value(), facts, 0, texts));
  static_cast<void>(launch::process_script(run.value(), 0, texts));
  static_cast<void>(launch::process_variables(run.value(), facts, 0));
}

}  // namespace

void job_arguments(std::string_view input) {
  if (const auto words = launch::read_arguments(input); words.ok()) {
    require_harmless(words.value().shell_text, words.value().has_pattern ? "*?" : "");
  }
  require_harmless(launch::quote_with_variables(input));
  require_harmless(quoted_word(input));
  const auto word = launch::read_arguments(launch::argument_of(input));
  require(word.ok(), "a word is read back");
  require_harmless(word.value().shell_text);
  static_cast<void>(launch::parse_job_duration(input));
}

void job_json(std::string_view input) {
  check_document(launch::parse_json_document(input, "file"));
  check_job_file(input, "file.json");
}

void job_yaml(std::string_view input) {
  check_document(launch::parse_yaml_document(input, "file"));
  check_job_file(input, "file.yaml");
}

void job_batchai(std::string_view input) {
  check_job_file("{\"properties\": {\"nodeCount\": 2, \"stdOutErrPathPrefix\": \"/l\", " + std::string(input) + "}}",
                 "file.json");
}

}  // namespace hvd::fuzz

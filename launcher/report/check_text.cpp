#include "launcher/report/check_text.h"

#include <algorithm>

#include "launcher/report/quantities.h"
#include "launcher/report/text_grid.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

using Lines = std::vector<std::string>;

void add_part(Lines& lines, const Lines& part) {
  if (!lines.empty() && !part.empty()) {
    lines.emplace_back();
  }
  lines.insert(lines.end(), part.begin(), part.end());
}

Lines finding_lines(const Finding& finding, const CheckTextOptions& options) {
  const Tone tone = finding.is_problem ? Tone::kProblem : Tone::kWarning;
  const std::string mark = finding.is_problem ? "problem  " : "warning  ";
  Lines lines = wrapped(mark, shown(finding.what), options.width);
  lines.front().replace(0, mark.size(), toned(finding.is_problem ? "problem" : "warning", tone, options.color) + "  ");
  if (!finding.advice.empty()) {
    const Lines advice = wrapped(std::string(mark.size(), ' ') + "try: ", shown(finding.advice), options.width);
    lines.insert(lines.end(), advice.begin(), advice.end());
  }
  return lines;
}

Lines end_lines(const CheckResult& result, const std::vector<Finding>& findings, const CheckTextOptions& options) {
  const auto problems = static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(), [](const Finding& finding) { return finding.is_problem; }));
  const std::size_t warnings = findings.size() - problems;
  const int code = exit_code_of(result, findings);
  std::string text = counted(result.hosts.size(), "host") + " checked in " + seconds_text(result.took) + ": ";
  if (result.interrupted_by != 0) {
    text += "interrupted, so that not all is known";
  } else {
    text += code == 0 ? "a job could start" : "a job could not start";
  }
  text += problems > 0 ? ", " + counted(problems, "problem") : "";
  text += warnings > 0 ? ", " + counted(warnings, "warning") : "";
  text += code != 0 ? "; exit code " + std::to_string(code) : "";
  return wrapped("", text, options.width);
}

}  // namespace

std::vector<std::string> check_text(const CheckResult& result, const std::vector<Finding>& findings,
                                    const CheckTextOptions& options) {
  Lines lines;
  if (!options.only_findings) {
    add_part(lines, host_table(result, findings, options));
    add_part(lines, host_details(result, findings, options));
    add_part(lines, link_table(result, options));
  }
  Lines notes;
  for (const CheckedHost& host : result.hosts) {
    for (const std::string& notice : host.notices) {
      const Lines own = wrapped("note     ", shown(host.name() + ": " + notice), options.width);
      notes.insert(notes.end(), own.begin(), own.end());
    }
  }
  for (const Finding& finding : findings) {
    const Lines own = finding_lines(finding, options);
    notes.insert(notes.end(), own.begin(), own.end());
  }
  add_part(lines, notes);
  if (!options.only_findings || !findings.empty()) {
    add_part(lines, end_lines(result, findings, options));
  }
  return lines;
}

}  // namespace hvd::launch

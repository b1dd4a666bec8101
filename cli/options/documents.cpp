#include "cli/options/documents.h"

#include <array>
#include <utility>

#include "cli/options/manual.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

using Options = std::vector<OptionInfo>;

struct ExitCode {
  const char* code;
  const char* meaning;
};
// The manual's page `failures` shows this table too.
constexpr std::array kExitCodes{
    ExitCode{"the rank's", "the code of the first rank that failed; 128 + N when signal N killed it"},
    ExitCode{"124", "the job ran for as long as --timeout, its file or Slurm allows"},
    ExitCode{"127", "no such program or script; nothing ran"},
    ExitCode{"128 + N", "hvdrun itself got signal N; 143 also of a submitted job that was stopped"},
    ExitCode{"141", "the reader of the output has gone"},
    ExitCode{"240", "the command line, or a file that it names, is wrong, or it names a job that is not there"},
    ExitCode{"241", "a host could not be reached in time, or its host key or our key was refused"},
    ExitCode{"242", "agent or ranks could not be started"},
    ExitCode{"243",
             "a node, or the connection to it, was lost while the job ran, or too few ranks were left for too long"},
    ExitCode{"244", "what the ranks printed could not be written"},
    ExitCode{"245", "a defect of hvdrun"},
    ExitCode{"246", "of a submitted job: its process was killed, or the machine restarted, while its ranks ran"},
    ExitCode{"247", "the ranks of an elastic job have changed more often than --reset-limit allows"},
};

std::string replaced(const std::string& text, char what, const std::string& by) {
  std::string result;
  for (const char c : text) {
    result += c == what ? by : std::string(1, c);
  }
  return result;
}

// Escapes text for a man page: a dash must be one that can be copied, and no line may begin with a request.
std::string roff(const std::string& text) {
  std::string safe = replaced(replaced(text, '\\', "\\e"), '-', "\\-");
  return safe.starts_with('.') || safe.starts_with('\'') ? "\\&" + safe : safe;
}

std::string man_options(const Options& options) {
  std::string text;
  std::string group;
  for (const OptionInfo& option : options) {
    if (option.group != group) {
      group = option.group;
      text += ".SS " + roff(group) + "\n";
    }
    text += ".TP\n.B " + roff(joined(option.names, ", ")) +
            (option.value.empty() ? "" : " \\fI" + roff(option.value) + "\\fR") + "\n" + roff(option.help) + "\n";
  }
  return text;
}

std::string man_page(const Options& options, const std::vector<std::string>& commands,
                     const std::vector<std::pair<std::string, std::string>>& examples) {
  std::string text =
      ".TH HVDRUN 1 \"\" \"hvdrun " HVD_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\nhvdrun \\- run a command as the ranks of one job, on this machine or on several hosts\n"
      ".SH SYNOPSIS\n.B hvdrun\n[\\fBrun\\fR|\\fBplan\\fR] [\\fIoptions\\fR] \\fIcommand\\fR [\\fIarguments\\fR]\n"
      ".br\n.B hvdrun\n[\\fBrun\\fR|\\fBplan\\fR] [\\fIoptions\\fR] \\fB\\-f\\fR \\fIfile\\fR\n"
      ".br\n.B hvdrun check\n[\\fIoptions\\fR] [\\fIprogram\\fR]\n"
      ".br\n.B hvdrun bench\n\\fImeasure\\fR [\\fIoptions\\fR]\n"
      ".br\n.B hvdrun submit\n[\\fB\\-c\\fR \\fIcluster\\fR] [\\fIoptions\\fR] \\fB\\-f\\fR \\fIfile\\fR\n"
      ".br\n.B hvdrun submit \\-\\-engine slurm\n\\fB\\-\\-nodes\\fR \\fIn\\fR [\\fIoptions\\fR] "
      "\\fIcommand\\fR [\\fIarguments\\fR]\n"
      ".br\n.B hvdrun submit \\-\\-engine slurm\n[\\fIoptions\\fR] \\fB\\-f\\fR \\fIfile\\fR\n"
      ".br\n.B hvdrun stacks\n[\\fIjob\\fR] [\\fB\\-\\-native\\fR] [\\fB\\-\\-json\\fR]\n"
      ".br\n.B hvdrun timeline\n\\fIfile\\fR [\\fB\\-\\-json\\fR]\n"
      ".br\n.B hvdrun top\n[\\fIjob\\fR] [\\fB\\-\\-once\\fR] [\\fB\\-\\-json\\fR]\n"
      ".br\n.B hvdrun join\n\\fIfile\\fR [\\fB\\-\\-slots\\fR \\fIn\\fR]\n"
      ".br\n.B hvdrun manifest\n\\fB\\-\\-image\\fR \\fIimage\\fR \\fB\\-\\-nodes\\fR \\fIn\\fR [\\fIoptions\\fR] "
      "\\fIcommand\\fR [\\fIarguments\\fR]\n"
      ".br\n.B hvdrun help\n[\\fItopic\\fR]\n"
      ".SH DESCRIPTION\nhvdrun starts a command on several processes and hosts, streams what every rank prints, says "
      "what failed first and why, and leaves nothing running. Hosts need an SSH server and the command's own software. "
      "\\fBplan\\fR shows what would run where and starts nothing. \\fBcheck\\fR reaches the hosts, starts no rank, "
      "and "
      "shows what a job would find there, how fast the network between them is, and what is wrong, with what to try; "
      "its "
      "exit status is 0 where a job could start, else that of the first problem. \\fBbench\\fR measures "
      "the collectives of these hosts, with nothing installed on them. \\fBsubmit\\fR gives a job file's job to a "
      "cluster, "
      "a set of hosts that \\fBcluster add\\fR has named, where it runs when enough of them are idle. "
      "Each command has a \\fB\\-\\-help\\fR of its own: ";
  text += roff(joined(commands, ", ")) + ".\n.SH OPTIONS\n";
  text += man_options(options) + ".SH EXIT STATUS\n";
  for (const ExitCode& code : kExitCodes) {
    text += std::string(".TP\n.B ") + roff(code.code) + "\n" + roff(code.meaning) + "\n";
  }
  text += ".SH EXAMPLES\n";
  for (const auto& [command, meaning] : examples) {
    text += ".TP\n.B " + roff(command) + "\n" + roff(meaning) + "\n";
  }
  text += ".SH MANUAL\n\\fBhvdrun help\\fR \\fITOPIC\\fR shows a page of the manual. The topics:\n";
  for (const ManualPage& page : manual_pages()) {
    text += ".TP\n.B " + roff(std::string(page.topic)) + "\n" + roff(std::string(manual_title(page))) + "\n";
  }
  return text + ".SH SEE ALSO\n.BR ssh (1),\n.BR ssh_config (5)\n";
}

// Each shell completes hvdrun's options up to the program, then the program and its own arguments.

std::string bash_completion(const Options& options, const std::vector<std::string>& commands) {
  std::string with_value;
  std::string cases;
  std::string all;
  for (const OptionInfo& option : options) {
    all += (all.empty() ? "" : " ") + joined(option.names, " ");
    if (option.value.empty()) {
      continue;
    }
    with_value += (with_value.empty() ? "" : "|") + joined(option.names, "|");
    const bool is_file = option.value == "FILE" || option.value == "DIR";
    if (is_file || !option.words.empty()) {
      const std::string how =
          is_file ? (option.value == "DIR" ? "-d" : "-f") : "-W '" + joined(option.words, " ") + "'";
      cases += "    " + joined(option.names, "|") + ") COMPREPLY=($(compgen " + how + " -- \"$word\")); return;;\n";
    }
  }
  return "# bash completion for hvdrun and horovodrun\n"
         "_hvdrun() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} i=1\n"
         "  COMPREPLY=()\n"
         "  while ((i < COMP_CWORD)); do\n"
         "    case ${COMP_WORDS[i]} in\n"
         "      -np|" +
         with_value +
         ") ((i += 2));;\n"
         "      -*) ((i += 1));;\n"
         "      " +
         joined(commands, "|") +
         ") ((i == 1)) && ((i += 1)) || break;;\n"
         "      *) break;;\n"
         "    esac\n"
         "  done\n"
         "  if ((i < COMP_CWORD)); then _command_offset \"$i\" 2>/dev/null || COMPREPLY=($(compgen -f -- \"$word\")); "
         "return; fi\n"
         "  case $before in\n" +
         cases + "    " + with_value +
         ") ((i > COMP_CWORD)) && return;;\n"
         "  esac\n"
         "  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W '-np " +
         all +
         "' -- \"$word\"))\n"
         "  else COMPREPLY=($(compgen -c -- \"$word\")); fi\n"
         "  ((COMP_CWORD == 1)) && COMPREPLY+=($(compgen -W '" +
         joined(commands, " ") +
         "' -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _hvdrun hvdrun horovodrun\n";
}

std::string zsh_quoted(const std::string& text) {
  return replaced(replaced(replaced(replaced(text, '\'', "'\\''"), '[', "\\["), ']', "\\]"), ':', "\\:");
}

std::string zsh_completion(const Options& options) {
  std::string text = "#compdef hvdrun horovodrun\n_arguments -s -S \\\n  '-np[number of ranks]:N:' \\\n";
  for (const OptionInfo& option : options) {
    const std::string files = option.value == "FILE" ? "_files" : option.value == "DIR" ? "_files -/" : "";
    const std::string values = option.words.empty() ? files : "(" + joined(option.words, " ") + ")";
    for (const std::string& name : option.names) {
      text += "  '*" + name + "[" + zsh_quoted(option.help) + "]" +
              (option.value.empty() ? "" : ":" + zsh_quoted(option.value) + ":" + values) + "' \\\n";
    }
  }
  return text + "  '(-)1:command:_command_names -e' \\\n  '*::arguments:_normal'\n";
}

std::string fish_completion(const Options& options, const std::vector<std::string>& commands) {
  std::string text = "# fish completion for hvdrun and horovodrun\n";
  for (const char* program : {"hvdrun", "horovodrun"}) {
    text += std::string("complete -c ") + program + " -n __fish_use_subcommand -a '" + joined(commands, " ") + "'\n";
    for (const OptionInfo& option : options) {
      text += std::string("complete -c ") + program;
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.value.empty()) {
        const bool is_file = option.value == "FILE" || option.value == "DIR";
        text += is_file ? " -r" : " -x";
      }
      if (!option.words.empty()) {
        text += " -a '" + joined(option.words, " ") + "'";
      }
      text += " -d '" + replaced(replaced(option.help, '\\', "\\\\"), '\'', "\\'") + "'\n";
    }
  }
  return text;
}

}  // namespace

Result<std::string> make_document(const std::string& kind, const std::vector<OptionInfo>& options,
                                  const std::vector<std::string>& commands,
                                  const std::vector<std::pair<std::string, std::string>>& examples) {
  if (kind == "man") {
    return man_page(options, commands, examples);
  }
  if (kind == "bash") {
    return bash_completion(options, commands);
  }
  if (kind == "zsh") {
    return zsh_completion(options);
  }
  if (kind == "fish") {
    return fish_completion(options, commands);
  }
  return Error(Code::kInvalid, "--document " + kind + ": expected man, bash, zsh or fish");
}

}  // namespace hvd::cli

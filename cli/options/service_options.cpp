#include "cli/options/service_options.h"

#include <algorithm>
#include <array>
#include <map>

#include <CLI/CLI.hpp>

#include "cli/options/option_words.h"
#include "cli/options/options.h"
#include "launcher/job/nearest_name.h"
#include "launcher/job/text_file.h"
#include "launcher/process/descendants.h"
#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

struct VerbWords {
  Verb verb;
  const char* name;
  const char* usage;
  const char* help;
};

constexpr std::array kVerbs{
    VerbWords{Verb::kClusterAdd, "cluster add", "cluster add NAME (-f FILE | -H LIST | --hostfile FILE)",
              "Makes a set of hosts known by a name, for jobs to wait for"},
    VerbWords{Verb::kClusterShow, "cluster show", "cluster show [NAME] [--json] [--field PATH]",
              "Shows how many of a cluster's nodes are idle, and which jobs have the others"},
    VerbWords{Verb::kClusterList, "cluster list", "cluster list [--json]", "Shows all clusters"},
    VerbWords{Verb::kClusterDrain, "cluster drain", "cluster drain NAME [NODE...]",
              "Gives these nodes (default: all) to no further job; what runs there goes on"},
    VerbWords{Verb::kClusterResume, "cluster resume", "cluster resume NAME [NODE...]", "Gives them to jobs again"},
    VerbWords{Verb::kClusterRemove, "cluster remove", "cluster remove NAME",
              "Forgets a cluster, whose jobs have all ended"},
    VerbWords{Verb::kPs, "ps", "ps [--all] [--json]", "Shows the jobs that have not ended, and the newest that have"},
    VerbWords{Verb::kShow, "show", "show JOB [--json] [--field PATH]", "Shows a job's record"},
    VerbWords{
        Verb::kWait, "wait", "wait JOB...",
        "Waits for a job's end; its exit status is the job's. Of several: until all have ended, and that of the first "
        "named that has failed"},
    VerbWords{Verb::kFiles, "files", "files JOB [-d ID] [-p PATH] [--json]", "Shows the files that a job has written"},
    VerbWords{Verb::kLogs, "logs", "logs JOB [-f] [--file NAME] [--rank N] [--node HOST] [-d ID] [-p PATH]",
              "Shows one of a job's files; with -f waits for it and goes on until the job ends"},
    VerbWords{Verb::kStop, "stop", "stop JOB [--no-wait]",
              "Ends a job; its record and files stay. A second one kills its ranks at once"},
    VerbWords{Verb::kRm, "rm", "rm JOB", "Removes a job's record and what hvdrun keeps of it, stopping it first"},
    VerbWords{Verb::kNodes, "nodes", "nodes JOB [--json]", "Shows the nodes that a job has"},
    VerbWords{Verb::kExec, "exec", "exec JOB [--node HOST] -- COMMAND...", "Runs a command on a node of a job"},
    VerbWords{Verb::kAttach, "attach", "attach JOB",
              "Shows what a job prints as if it ran here, until it ends or Ctrl-C, which leaves it running"},
    VerbWords{Verb::kReport, "report", "report JOB [-o FILE] | --serve [ADDRESS:PORT]",
              "Shows where a job's page is, which tells what ran where and what failed first; also while it runs. With "
              "--serve: shows all jobs and clusters to a browser on this machine, until Ctrl-C"},
};
// Not for users.
const std::map<std::string, Verb> kOwnVerbs = {{"recover", Verb::kRecover}, {launch::kSuperviseWord, Verb::kSupervise}};

const VerbWords* verb_of(std::vector<std::string>& words) {
  const std::string first = words.front();
  words.erase(words.begin());
  std::string name = first;
  if (first == "cluster" && !words.empty() && words.front().front() != '-') {
    name += " " + words.front();
    words.erase(words.begin());
  }
  const auto* const found =
      std::find_if(kVerbs.begin(), kVerbs.end(), [&name](const VerbWords& verb) { return verb.name == name; });
  return found == kVerbs.end() ? nullptr : found;
}

void add_shown(CLI::App& app, ServiceOptions& options, bool has_field) {
  app.add_flag("--json", options.json, "As JSON, with the names of the service's REST objects");
  if (has_field) {
    app.add_option("--field,--query", options.field, "Only this, as in executionState or executionInfo.exitCode")
        ->type_name("PATH");
  }
}

void add_job(CLI::App& app, ServiceOptions& options) {
  app.add_option("job", options.job, "The job's name or number")->required()->type_name("JOB");
}

void add_cluster(CLI::App& app, ServiceOptions& options, bool is_required) {
  app.add_option("cluster", options.cluster, "The cluster's name")->required(is_required)->type_name("NAME");
}

void add_verb_options(CLI::App& app, ServiceOptions& options) {
  switch (options.verb) {
    case Verb::kClusterAdd:
      add_cluster(app, options, true);
      app.add_option("-f,--file", options.cluster_file, "The cluster's file: hosts, mounts, defaults")
          ->type_name("FILE");
      app.add_option("-H,--hosts", options.hosts, "Its hosts, as in node1:4,node2:4")->type_name("LIST");
      app.add_option("--hostfile", options.hostfile, "File with a host a line")->type_name("FILE");
      break;
    case Verb::kClusterShow:
      add_cluster(app, options, false);
      add_shown(app, options, true);
      break;
    case Verb::kClusterList:
      add_shown(app, options, false);
      break;
    case Verb::kClusterDrain:
    case Verb::kClusterResume:
      add_cluster(app, options, true);
      app.add_option("nodes", options.nodes, "Its nodes; default: all")->type_name("NODE");
      break;
    case Verb::kClusterRemove:
      add_cluster(app, options, true);
      break;
    case Verb::kPs:
      app.add_flag("-a,--all", options.all, "All that have ended, too");
      add_shown(app, options, false);
      break;
    case Verb::kShow:
      add_job(app, options);
      add_shown(app, options, true);
      break;
    case Verb::kNodes:
      add_job(app, options);
      add_shown(app, options, false);
      break;
    case Verb::kFiles:
      add_job(app, options);
      app.add_option("-d,--output-directory-id", options.directory, "Of an output directory; default: stdouterr")
          ->type_name("ID");
      app.add_option("-p,--path", options.path, "A folder in it")->type_name("PATH");
      add_shown(app, options, false);
      break;
    case Verb::kLogs:
      add_job(app, options);
      app.add_flag("-f,--follow", options.follow, "Wait for the file, and go on until the job ends");
      app.add_option("--file,--file-name", options.file,
                     "Its name; default: stdout.txt, or what the first process prints")
          ->type_name("NAME");
      app.add_option("-d,--output-directory-id", options.directory, "Of an output directory; default: stdouterr")
          ->type_name("ID");
      app.add_option("-p,--path", options.path, "A folder in it, which has the file")->type_name("PATH");
      app.add_option("--rank", options.rank, "What this rank prints")->type_name("N")->check(CLI::Range(0, 1'000'000));
      app.add_option("--node", options.node, "The file of this node; default: execution.log")->type_name("HOST");
      break;
    case Verb::kStop:
      add_job(app, options);
      app.add_flag("--no-wait", options.no_wait, "Do not wait until it has ended");
      break;
    case Verb::kExec:
      add_job(app, options);
      app.add_option("--node", options.node, "Which of its nodes; default: the first")->type_name("HOST");
      app.prefix_command();
      break;
    case Verb::kReport:
      app.add_option("job", options.job, "The job's name or number")->type_name("JOB");
      app.add_option_function<std::vector<std::string>>(
             "--serve",
             [&options](const std::vector<std::string>& words) {
               options.serves = true;
               options.serve_at = words.empty() ? "" : words.front();
             },
             "Show all jobs and clusters to a browser; its address is printed. Default: a free port of 127.0.0.1")
          ->type_name("[ADDRESS:PORT]")
          ->expected(0, 1)
          ->trigger_on_parse();
      app.add_option("-o,--output", options.out, "Copy the page to this file; -: to standard output")
          ->type_name("FILE");
      break;
    case Verb::kWait:
      app.add_option("jobs", options.jobs, "Names or numbers of jobs")->required()->type_name("JOB...");
      break;
    case Verb::kRm:
    case Verb::kAttach:
      add_job(app, options);
      break;
    case Verb::kRecover:
      break;
    case Verb::kSupervise:
      app.add_option("state", options.state_root)->required();
      app.add_option("id", options.id)->required();
      break;
  }
}

// Returns the words that may follow "cluster".
std::vector<std::string> cluster_verbs() {
  constexpr std::string_view kFirst = "cluster ";
  std::vector<std::string> verbs;
  for (const VerbWords& verb : kVerbs) {
    if (std::string_view(verb.name).starts_with(kFirst)) {
      verbs.emplace_back(verb.name + kFirst.size());
    }
  }
  return verbs;
}

// Returns the one that is meant by a misspelt word, or by the beginning of one; empty: not known.
std::string meant_verb(const std::string& word, const std::vector<std::string>& verbs) {
  const auto begins = [&word](const std::string& verb) { return verb.starts_with(word); };
  return std::count_if(verbs.begin(), verbs.end(), begins) == 1 ? *std::find_if(verbs.begin(), verbs.end(), begins)
                                                                : launch::nearest_name(word, verbs);
}

Error unknown(const std::vector<std::string>& words) {
  const std::string& first = words.front();
  if (const std::string other = instead_of_az(words); !other.empty()) {
    return Error(Code::kInvalid, other);
  }
  if (first == "cluster") {
    const std::vector<std::string> verbs = cluster_verbs();
    const bool has_verb = words.size() > 1 && !words[1].starts_with('-');
    const std::string near = has_verb ? meant_verb(words[1], verbs) : "";
    std::string known;
    for (const std::string& verb : verbs) {
      add_to_list(known, verb);
    }
    return Error(Code::kInvalid, (has_verb ? "cluster " + launch::shown_text(words[1]) + ": there is no such command"
                                           : std::string("cluster: say what to do")) +
                                     (near.empty() ? "" : "; did you mean hvdrun cluster " + near + "?") +
                                     (near.empty() ? "; there are " : " There are ") + known +
                                     "; hvdrun cluster --help says more");
  }
  return Error(Code::kInvalid, "'" + first + "' is no command");
}

bool is_help(const std::string& word) {
  return word == "-h" || word == "--help";
}

// Returns what each of the words after "cluster" does.
std::string cluster_help() {
  std::string text;
  for (const VerbWords& verb : kVerbs) {
    if (std::string_view(verb.name).starts_with("cluster ")) {
      text += std::string(text.empty() ? "usage: hvdrun " : "       hvdrun ") + verb.usage + "\n           " +
              verb.help + "\n";
    }
  }
  return text + "Each has a --help of its own; the page: hvdrun help clusters\n";
}

}  // namespace

bool is_service_command(const std::string& word) {
  return kOwnVerbs.contains(word) || std::any_of(kVerbs.begin(), kVerbs.end(), [&word](const VerbWords& verb) {
           const std::string name = verb.name;
           return word == name.substr(0, name.find(' '));
         });
}

std::string service_commands() {
  std::string names;
  for (const VerbWords& verb : kVerbs) {
    const std::string name = verb.name;
    const std::string first = name.substr(0, name.find(' '));
    if (verb.verb <= Verb::kClusterAdd || first != "cluster") {
      add_to_list(names, first);
    }
  }
  return names;
}

Result<CliOptions> parse_service(std::vector<std::string> words) {
  const std::string first = words.front();
  CliOptions options;
  options.command = Command::kService;
  ServiceOptions& service = options.service;
  const VerbWords* verb = nullptr;
  if (const auto own = kOwnVerbs.find(first); own != kOwnVerbs.end()) {
    service.verb = own->second;
    words.erase(words.begin());
  } else {
    if (first == "cluster" && words.size() > 1 && is_help(words[1])) {
      options.command = Command::kHelp;
      options.help_text = cluster_help();
      return options;
    }
    const std::vector<std::string> line = words;
    verb = verb_of(words);
    if (verb == nullptr) {
      return unknown(line);
    }
    service.verb = verb->verb;
  }
  CLI::App app(verb == nullptr ? "" : verb->help, "hvdrun");
  app.set_help_flag();
  bool help = false;
  app.add_flag("-h,--help", help, "Show this, and end");
  add_verb_options(app, service);
  const auto own_end = std::find(words.begin(), words.end(), "--");  // a command for the node follows
  if (verb != nullptr && std::any_of(words.begin(), own_end, is_help)) {
    options.command = Command::kHelp;
    options.help_text = command_help(app, verb->usage);
    return options;
  }
  if (const auto read = parse_words(app, std::move(words)); !read.ok()) {
    return verb == nullptr ? read.error() : with_usage(read.error(), verb->usage);
  }
  if (service.verb == Verb::kReport && service.serves == !service.job.empty()) {
    return with_usage(Error(Code::kInvalid, service.serves ? "report: JOB or --serve" : "report: which job?"),
                      verb->usage);
  }
  if (service.verb == Verb::kExec) {
    service.command = app.remaining();
    if (!service.command.empty() && service.command.front() == "--") {
      service.command.erase(service.command.begin());
    }
    if (service.command.empty()) {
      return Error(Code::kInvalid, std::string("exec: say what to run; as in: hvdrun ") + verb->usage);
    }
  }
  options.json = service.json;
  return options;
}

}  // namespace hvd::cli

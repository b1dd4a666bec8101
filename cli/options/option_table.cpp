#include "cli/options/option_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>

#include "launcher/allocations/allocation.h"
#include "launcher/job/text_file.h"
#include "launcher/job/tunable.h"
#include "runtime/base/text.h"
#include "runtime/bench/bench_wire.h"

namespace hvd::cli {
namespace {

const std::vector<std::string> kColorWords = {"auto", "always", "never"};
const std::vector<std::string> kGpuWords = {"local", "one", "none"};
const std::vector<std::string> kBindWords = {"none", "core", "numa"};
const std::vector<std::string> kLauncherWords = {"ssh", "mpi", "slurm", "jsrun", "spark", "kubernetes"};
const std::vector<std::string> kEngineWords = [] {
  std::vector<std::string> words = launch::engine_words();
  words.emplace_back("none");
  return words;
}();
const std::vector<std::string> kContainerWords = {"auto", "podman", "docker", "apptainer", "none"};
const std::vector<std::string> kElasticWords = {"ranks", "restart"};
const std::vector<std::string> kManifestKinds = {"jobset", "job", "trainjob"};
const std::vector<std::string> kDocumentKinds = {"man", "bash", "zsh", "fish", "schema"};

const std::vector<std::pair<std::string, std::string>> kExamples = {
    {"hvdrun -np 2 python train.py", "two ranks here"},
    {"hvdrun -np 4 -H node1:2,node2:2 python train.py", "two on each of two hosts"},
    {"hvdrun bench allreduce -np 4 -H node1:2,node2:2", "measure these hosts"},
    {"hvdrun plan -np 4 -H node1:2,node2:2 python train.py", "show what would run where; start nothing"},
    {"hvdrun check -H node1:2,node2:2", "are the hosts and the network ready for a job?"},
    {"hvdrun -f job.json -H node1,node2 --mount-root /data", "run the job that a file describes"},
};

void add_tunable(CLI::App& app, Flags& flags, const launch::Tunable& tunable) {
  const auto take = [&flags, &tunable](const std::string& value) {
    const auto text = launch::variable_value(tunable, value, tunable.flag);
    if (!text.ok()) {
      throw CLI::ValidationError(text.error().message());
    }
    flags.settings.emplace_back(tunable.variable, text.value());
  };
  constexpr const char* kGroup = "Settings of the runtime (also in --config-file)";
  const std::string help = std::string(tunable.help) + " (" + tunable.variable + ")";
  if (tunable.kind != launch::Tunable::Kind::kSwitch) {
    const bool is_text = tunable.kind == launch::Tunable::Kind::kText;
    app.add_option_function<std::string>(tunable.flag, take, help)->type_name(is_text ? "TEXT" : "N")->group(kGroup);
    return;
  }
  const auto set = [&flags, &tunable](const char* value) {
    return [&flags, &tunable, value] { flags.settings.emplace_back(tunable.variable, value); };
  };
  app.add_flag_callback(tunable.flag, set("1"), help)->group(kGroup);
  app.add_flag_callback(tunable.off_flag, set("0"), "The opposite")->group(kGroup);
}

// Reads "90", "90s", "1.5m", "2h" and "1d" as seconds.
std::optional<double> seconds_in(std::string_view word) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  static constexpr std::array<Unit, 5> kUnits = {{{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}}};
  const std::size_t end = word.find_last_not_of("abcdefghijklmnopqrstuvwxyz") + 1;
  const auto* const unit =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& known) { return known.name == word.substr(end); });
  const auto number = parse_number<double>(word.substr(0, end));
  return unit == kUnits.end() || !number ? std::nullopt : std::optional(*number * unit->seconds);
}

// For transform(): makes a time with a unit a number of seconds. CLI11's own range check accepts "nan", which is
// neither below its least nor above its most.
CLI::Validator seconds_from(double least, double most) {
  const auto check = [least, most](std::string& word) -> std::string {
    const auto seconds = seconds_in(word);
    if (!seconds || !(*seconds >= least && *seconds <= most)) {
      return "'" + launch::shown_text(word) + "' is no number of seconds from " + CLI::detail::to_string(least) +
             " to " + CLI::detail::to_string(most) + "; 90s, 5m, 2h and 1d are times too";
    }
    if (!std::isdigit(static_cast<unsigned char>(word.back())) && word.back() != '.') {
      word = std::to_string(*seconds);
    }
    return "";
  };
  return CLI::Validator(check, "FLOAT");
}

void add_elastic_options(CLI::App& app, Flags& flags) {
  constexpr const char* kGroup = "Elastic jobs (when a rank fails, training goes on)";
  app.add_option(
         "--elastic-restarts", flags.elastic_restarts,
         "How often failed ranks are started again, all together; default: 10 with another of these options, else 0")
      ->type_name("N")
      ->check(CLI::Range(0, 1000000))
      ->group(kGroup);
  app.add_option("--elastic", flags.elastic,
                 "What starts again: ranks (the failed one, while the others keep what they have in memory) or restart "
                 "(all of them, from the script's own checkpoint, as with torchrun); default: ranks")
      ->type_name("WHAT")
      ->check(CLI::IsMember(kElasticWords))
      ->group(kGroup);
  app.add_option("--min-np,--min-num-proc", flags.min_np,
                 "When a rank or host is lost, the others go on without it if there are so many; default: all of -np")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000))
      ->group(kGroup);
  app.add_option("--max-np,--max-num-proc", flags.max_np,
                 "No more ranks than so many, also when hosts join; default: one for each slot")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000))
      ->group(kGroup);
  app.add_option("--host-discovery-script", flags.host_discovery_script,
                 "Command that prints the hosts, one a line as host:slots; run again and again, so that hosts join and "
                 "leave the running job")
      ->type_name("COMMAND")
      ->group(kGroup);
  app.add_flag("--watch-hostfile", flags.watch_hostfile,
               "Hosts that are added to --hostfile join the running job, and those that are removed leave it")
      ->group(kGroup);
  app.add_option(
         "--join-file", flags.join_file,
         "Let machines join the running job: writes FILE, by which hvdrun join FILE on such a machine finds the "
         "job and proves itself; nobody else may read it")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--slots-per-host,--slots", flags.slots_per_host, "Slots of a host that is named without any")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000))
      ->group(kGroup);
  app.add_option("--discovery-interval", flags.discovery_interval_s,
                 "Seconds between two looks at which hosts there are; default: 1")
      ->type_name("S")
      ->transform(seconds_from(0.1, 3600))
      ->group(kGroup);
  app.add_option("--blacklist-cooldown-range", flags.cooldown_range_s,
                 "For how many seconds a host that failed gets no new ranks: after its first failure, and at most; "
                 "default: 10 600")
      ->type_name("LEAST MOST")
      ->expected(2)
      ->transform(seconds_from(0.1, 1e6))
      ->group(kGroup);
  app.add_flag(
         "--exclude-failed-hosts", flags.exclude_failed_hosts,
         "When a rank fails, do without its host as a whole, in place of starting the rank again; for the time of "
         "--blacklist-cooldown-range, default: for ever")
      ->group(kGroup);
  app.add_option("--reset-limit", flags.reset_limit,
                 "How often the ranks may change, all together, also when hosts join or leave; then the job ends; "
                 "default: any number of times")
      ->type_name("N")
      ->check(CLI::Range(0, 1000000))
      ->group(kGroup);
  app.add_option("--elastic-timeout", flags.elastic_timeout_s,
                 "Seconds for the ranks to meet again after a restart, and for hosts to come where there are too few; "
                 "default: HOROVOD_ELASTIC_TIMEOUT, else 600")
      ->type_name("S")
      ->transform(seconds_from(1.0, 1e6))
      ->group(kGroup);
  app.add_option("--elastic-wait", flags.elastic_wait_s,
                 "Seconds to wait for other ranks in place of those that were lost, before the job goes on with fewer; "
                 "default: 0")
      ->type_name("S")
      ->transform(seconds_from(0.0, 1e6))
      ->group(kGroup);
}

void add_kubernetes_options(CLI::App& app, Flags& flags) {
  constexpr const char* kGroup = "In pods of Kubernetes (--launcher kubernetes)";
  app.add_option("--nodes", flags.nodes,
                 "How many pods have an agent that calls hvdrun; with submit --engine slurm: the nodes to ask for")
      ->type_name("N")
      ->check(CLI::Range(1, 100000))
      ->group(kGroup);
  app.add_option("--key-file", flags.key_file, "File with the key that they prove to have: 64 hex digits, mode 0400")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--agent-port", flags.agent_port, "Port at which they call; default: 4711")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535))
      ->group(kGroup);
}

void add_output_options(CLI::App& app, Flags& flags) {
  app.add_option(
         "--output-filename", flags.output_filename,
         "Also write what rank N prints to DIR/rank.N/stdout and DIR/rank.N/stderr; N is padded with zeros, as in "
         "rank.03 of 16")
      ->type_name("DIR");
  app.add_option("--output-rotate", flags.output_rotate,
                 "Rename such a file to stdout.1 at SIZE (as 10M, 1G), the one before to stdout.2 and so on; 10M:5 "
                 "keeps 5 of these, 10M one")
      ->type_name("SIZE");
  app.add_option("--report", flags.report,
                 "Also keep a page of the job: what ran where and when, and the first failure; rewritten while it runs")
      ->type_name("FILE.html");
  app.add_option("--spans", flags.spans,
                 "Also keep the job's spans, for OpenTelemetry: of the job, the start of each node, and each rank, as "
                 "OTLP/JSON; under the span that TRACEPARENT names")
      ->type_name("FILE.json");
  app.add_flag("--prefix-output-with-timestamp", flags.timestamps, "Put the time in front of the ranks' lines");
  app.add_option("--color", flags.color,
                 "Colour the tags by rank; auto, the default: on a terminal, unless NO_COLOR is set, and wherever "
                 "CLICOLOR_FORCE is")
      ->type_name("WHEN")
      ->check(CLI::IsMember(kColorWords));
  app.add_flag("--no-tags", flags.no_tags, "Do not put [rank]<stdout>: in front of the ranks' lines");
  app.add_flag("--gather", flags.gather,
               "Show a line that several ranks print within a quarter of a second once, tagged with all of them");
  app.add_option("--show-ranks", flags.show_ranks,
                 "Show only what these ranks print, as in 0,4-7; files have what the others print too")
      ->type_name("LIST");
  app.add_option("--metrics", flags.metrics_file,
                 "Keep the job's metrics in FILE, written anew every second in Prometheus's text form, as for "
                 "node_exporter's textfile collector")
      ->type_name("FILE");
  app.add_option("--metrics-listen", flags.metrics_listen,
                 "Give the job's metrics to whoever asks for /metrics there, as Prometheus does: unix:PATH or "
                 "127.0.0.1:PORT, or another address with --metrics-token")
      ->type_name("PLACE");
  app.add_option("--metrics-token", flags.metrics_token,
                 "File with the bearer token that whoever asks for the metrics must show")
      ->type_name("FILE");
  app.add_flag("-q,--quiet", flags.quiet, "Print nothing of hvdrun's own unless the job fails");
  app.add_flag("--verbose", flags.verbose, "Report each step");
}

void add_job_file_options(CLI::App& app, Flags& flags) {
  constexpr const char* kGroup = "Job files";
  app.add_option("-f,--file", flags.job_file,
                 "Run the job that FILE describes, in place of a command: Azure Batch AI's job.json, the same keys as "
                 "YAML, or hvdrun's own short form; -np is its number of processes")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--name", flags.job_name, "Name of the job; default: as in the file, or the file's own")
      ->type_name("NAME")
      ->group(kGroup);
  app.add_option("--mount", flags.mounts,
                 "Directory of the nodes that the job's mount NAME (relativeMountPath) leads to; repeatable")
      ->type_name("NAME=DIR")
      ->allow_extra_args(false)
      ->group(kGroup);
  app.add_option("--mount-root", flags.mount_root, "The same for all other mounts: DIR/NAME")
      ->type_name("DIR")
      ->group(kGroup);
  app.add_option("--storage-account-name", flags.storage_account,
                 "For <AZURE_BATCHAI_STORAGE_ACCOUNT> in the file; default: the variable AZURE_BATCHAI_STORAGE_ACCOUNT")
      ->type_name("NAME")
      ->group(kGroup);
  app.add_option("--container", flags.container,
                 "What runs the file's container image: the first that a node has (auto, the default), one of them, or "
                 "nothing: on "
                 "the host (none)")
      ->type_name("WORD")
      ->check(CLI::IsMember(kContainerWords))
      ->group(kGroup);
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& example_commands() {
  return kExamples;
}

std::string description() {
  std::string text = "Runs a command as the ranks of one job, on this machine or on several hosts over SSH.";
  for (const auto& [command, meaning] : kExamples) {
    constexpr std::size_t kWidth = 54;
    text += "\n  " + command + std::string(std::max(command.size() + 2, kWidth) - command.size(), ' ') + meaning;
  }
  return text;
}

void add_options(CLI::App& app, Flags& flags) {
  app.add_option("--np,--num-proc", flags.np, "Number of ranks; default: one per slot of the hosts")->type_name("N");
  app.add_option("-H,--hosts", flags.hosts, "Hosts with their slots, as in node1:4,user@node2:4; default: this machine")
      ->type_name("LIST");
  app.add_option("--hostfile", flags.hostfile, "File with a host a line: 'node1 slots=4', 'node1:4' or 'node[1-4]'")
      ->type_name("FILE");
  app.add_option("--config-file", flags.config_file, "YAML file with settings of the runtime, in horovodrun's form")
      ->type_name("FILE");
  app.add_option("-x", flags.env, "Set (NAME=VALUE) or pass on (NAME) an environment variable to all ranks; repeatable")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  app.add_option(
         "--stdin", flags.input,
         "Who reads hvdrun's standard input: rank N, all ranks, or none; default: rank 0. The others find nothing "
         "in theirs")
      ->type_name("N|all|none");
  app.add_option(
         "--gpus", flags.gpus,
         "GPUs that a rank sees: those of the job on its node (local, the default), its own (one), or untouched (none)")
      ->type_name("WORD")
      ->check(CLI::IsMember(kGpuWords));
  app.add_option("--bind", flags.bind,
                 "Processors that a rank runs on: all (none, the default), cores of its own (core), or those near its "
                 "GPU or of its "
                 "part of the memory nodes (numa)")
      ->type_name("WORD")
      ->check(CLI::IsMember(kBindWords));
  app.add_flag(
      "--sync{.}", flags.sync,
      "Bring the working directory, or the folder of --sync=DIR, to the hosts that are not this one, as far as "
      "git or a file .hvdignore does not leave it out, and start the ranks in it");
  app.add_option(
         "--sync-back", flags.sync_back,
         "Bring files that fit PATTERN, and that ranks have made in that folder, back to DIR/synced-back/HOST when "
         "the ranks of their host have ended; repeatable")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  app.add_option("--start-timeout", flags.start_timeout_s,
                 "Seconds until all hosts must have answered; default: HOROVOD_START_TIMEOUT, else 60")
      ->type_name("S")
      ->transform(seconds_from(0.1, 1e6));
  app.add_option("--timeout", flags.timeout_s,
                 "Seconds after which the job is stopped; 0: never. Also as 30m, 2h or 1d")
      ->type_name("S")
      ->transform(seconds_from(0.0, 1e9));
  app.add_option(
         "--stacks-on-stall", flags.stacks_on_stall_s,
         "Show the stacks of all ranks when one has waited so long in an operation of libhvd, or, in other jobs, "
         "when none has printed for so long; 0: never. Default: the stall check's time, else 60, without the "
         "latter")
      ->type_name("S")
      ->transform(seconds_from(0.0, 1e6));
  app.add_option("--grace", flags.grace_s,
                 "Seconds between the first signal and SIGKILL when the job is stopped; default: 10")
      ->type_name("S")
      ->transform(seconds_from(0.0, 1e6));
  app.add_option("--heartbeat", flags.heartbeat_s,
                 "Seconds between two signs of life on each connection to another host; after three without an answer "
                 "the connection is lost. Default: HVD_HEARTBEAT, else 10")
      ->type_name("S")
      ->transform(seconds_from(0.1, 3600));
  app.add_option("--reconnect-timeout", flags.reconnect_timeout_s,
                 "Seconds to reach a node again whose connection broke, while its ranks go on; 0: it is lost at once; "
                 "default: 60")
      ->type_name("S")
      ->transform(seconds_from(0.0, 1e6));
  app.add_option("-p,--ssh-port", flags.ssh_port, "SSH port of all hosts; default: as ssh has it")
      ->type_name("PORT")
      ->check(CLI::Range(1, 65535));
  app.add_option("-i,--ssh-identity-file", flags.ssh_identity_file, "Private key for SSH, tried first")
      ->type_name("FILE");
  app.add_option("--ssh-config", flags.ssh_config, "SSH configuration file, as in ssh -F")->type_name("FILE");
  app.add_option("--rsh", flags.rsh,
                 "Reach all other hosts by this command, as in 'ssh {host}' or 'kubectl exec -i {host} --'; {user} and "
                 "{port} may be in it. Default: HVD_RSH, else SSH")
      ->type_name("COMMAND");
  app.add_option(
         "--fanout", flags.fanout,
         "Most nodes to connect to from one place: of more, the first ones connect to the others, as a tree; 0: "
         "hvdrun connects to all; default: 64")
      ->type_name("N")
      ->check(CLI::Range(0, 100000));
  app.add_option(
         "--launcher", flags.launcher,
         "Who starts the ranks: hvdrun, here and by SSH or --rsh (ssh, the default), Open MPI's mpirun (mpi), for "
         "programs "
         "that use MPI themselves, a step of Slurm on the nodes of its job (slurm; the default within salloc and "
         "sbatch), jsrun in a job of LSF (jsrun), tasks of Spark or Ray (spark), as horovod.spark and horovod.ray ask "
         "for, or pods (kubernetes), as "
         "hvdrun manifest writes")
      ->type_name("WORD")
      ->check(CLI::IsMember(kLauncherWords));
  app.add_option(
         "--engine", flags.engine,
         "The batch system or cloud in whose job hvdrun runs, to insist on its hosts (slurm, pbs, lsf, sge, flux, "
         "sagemaker, azure, vertex, skypilot, dstack, lws, volcano), or none, to leave it aside. Default: the one "
         "whose "
         "variables are there; see hvdrun help allocations")
      ->type_name("NAME")
      ->check(CLI::IsMember(kEngineWords));
  app.add_flag(
      "--requeue-on-notice", flags.requeue_on_notice,
      "In a job of Slurm: when SIGTERM or SIGUSR1 says that its time is over, end the ranks by that signal, and "
      "put the job back into Slurm's queue");
  app.add_option("--status-file", flags.status_file)->group("");      // for a job that is submitted to Slurm
  app.add_option("--plm-rsh-agent", flags.plm_rsh_agent)->group("");  // foreign/mpirun_words.h
  app.add_option("--plm-rsh-args", flags.plm_rsh_args)->group("");
  app.add_option("--setting-of-timeout", flags.timeout_setting)->group("");                  // hvdrun manifest
  app.add_option("--driver-fd", flags.driver_fd)->check(CLI::Range(3, 1 << 20))->group("");  // engines/driver_pipe.h
  app.add_option("--unkept-after", flags.unkept_variable)->group("");  // horovod/runner/_exchange.py
  app.add_option("--end-with-parent", flags.parent)->check(CLI::PositiveNumber)->group("");  // horovod/runner/_job.py
  app.add_flag("--mpi", flags.mpi, "As --launcher mpi");
  app.add_option("--mpi-args", flags.mpi_args,
                 "Further arguments for mpirun, split as a shell splits quotes; they mean --mpi")
      ->type_name("TEXT");
  app.add_option("--binding-args", flags.binding_args,
                 "Arguments by which mpirun binds the ranks to processors; default: it does not. They mean --mpi")
      ->type_name("TEXT");
  app.add_flag_callback(
      "--secure-links", [&flags] { flags.settings.emplace_back("HVD_LINK_SECURITY", "encrypt"); },
      "Encrypt all that ranks send to other hosts (HVD_LINK_SECURITY=encrypt); see hvdrun help security");
  app.add_option("--network-interfaces", flags.interfaces,
                 "Network interfaces by which ranks reach each other (libhvd, NCCL, Gloo), the best first; comma list, "
                 "repeatable")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--tcp", flags.tcp, "No InfiniBand for NCCL (NCCL_IB_DISABLE=1)");
  app.add_flag("--jsrun", flags.jsrun, "As --launcher jsrun");
  app.add_flag("--gloo", flags.gloo, "Accepted for horovodrun: mpirun does not start the ranks");
  app.add_flag_callback("--disable-cache", [] {}, "Accepted for horovodrun: hvdrun always works so");
  add_elastic_options(app, flags);
  add_kubernetes_options(app, flags);
  add_output_options(app, flags);
  add_job_file_options(app, flags);
  app.add_flag(
      "--json", flags.json,
      "plan, check, submit: print JSON. run: report events on standard error, one JSON object a line, instead of text");
  app.add_flag("--check-build", flags.check_build, "Show what this build can do and what is missing, and end");
  app.add_option("--document", flags.document,
                 "Print the manual page (man), a shell's completion or the JSON schema of job files, and end")
      ->type_name("KIND")
      ->check(CLI::IsMember(kDocumentKinds));
  app.add_flag("-v,--version", flags.version, "Show the version, and end");
  for (const launch::Tunable& tunable : launch::tunables()) {
    add_tunable(app, flags, tunable);
  }
}

void add_bench_options(CLI::App& app, Flags& flags) {
  constexpr const char* kGroup = "hvdrun bench";
  app.add_option("--min", flags.bench_min, "Smallest size in bytes; K, M, G and T are understood; default: 4")
      ->type_name("SIZE")
      ->group(kGroup);
  app.add_option("--max", flags.bench_max, "Largest size; default: 64M, of latency 1K")
      ->type_name("SIZE")
      ->group(kGroup);
  app.add_option("--factor", flags.bench_factor, "From one size to the next; default: 4")
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--type", flags.bench_type, "Element type, float32 by default")
      ->type_name("WORD")
      ->check(CLI::IsMember(bench::type_names()))
      ->group(kGroup);
  app.add_option("--op", flags.bench_op, "Reduction operator, sum by default")
      ->type_name("WORD")
      ->check(CLI::IsMember(bench::op_names()))
      ->group(kGroup);
  app.add_option("--iters", flags.bench_iters,
                 "Calls that are timed of each size; 0: for about a quarter of a second; default: 0")
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--warmup", flags.bench_warmup, "Calls before these; default: 5")->type_name("N")->group(kGroup);
  app.add_option("--tune", flags.tune,
                 "Instead of a measure: find the fastest sizes for this placement, and write them into FILE, which "
                 "HVD_TUNING=FILE makes a job use; --max bounds what is tried")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--plot", flags.plots, "Also draw bandwidth and time by size; FILE ends in .svg; may be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(kGroup);
}

namespace {

void add_batch_options(CLI::App& app, Flags& flags, const char* group) {
  app.add_option("--sbatch", flags.sbatch,
                 "With --engine slurm: one more option for sbatch, as in --sbatch=--partition=gpu; repeatable")
      ->type_name("OPTION")
      ->allow_extra_args(false)
      ->group(group);
}

}  // namespace

void add_plan_options(CLI::App& app, Flags& flags) {
  add_batch_options(app, flags, "hvdrun plan");
  app.add_option("-c,--cluster", flags.cluster, "Plan a job file's job as on this cluster of the job service")
      ->type_name("NAME")
      ->group("hvdrun plan");
}

void add_manifest_options(CLI::App& app, Flags& flags) {
  constexpr const char* kGroup = "hvdrun manifest";
  constexpr const char* kSecretLetters = "abcdefghijklmnopqrstuvwxyz0123456789-.";
  app.add_option(
         "--kind", flags.manifest_kind,
         "A JobSet, which is the default, two Jobs and a Service, which need no controller, or a TrainJob of Kubeflow "
         "Trainer with its TrainingRuntime")
      ->type_name("WORD")
      ->check(CLI::IsMember(kManifestKinds))
      ->group(kGroup);
  app.add_option("--image", flags.image, "Container image of the nodes, with the program")
      ->type_name("IMAGE")
      ->group(kGroup);
  app.add_option("--hvdrun-image", flags.hvdrun_image,
                 "Image with hvdrun, whose agent is copied to the nodes; default: the nodes' image has both")
      ->type_name("IMAGE")
      ->group(kGroup);
  app.add_option("--gpus-per-node", flags.gpus_per_node, "GPUs of each pod (nvidia.com/gpu)")
      ->type_name("N")
      ->check(CLI::Range(0, 1000))
      ->group(kGroup);
  app.add_option("--secret-name", flags.secret_name,
                 "Secret that has the key as its entry 'key'; default: the manifest has one with a fresh key")
      ->type_name("NAME")
      ->check([](const std::string& name) {
        const bool is_good = !name.empty() && name.find_first_not_of(kSecretLetters) == std::string::npos;
        return is_good ? "" : "'" + name + "': expected small letters, digits, - and ., as the names of Secrets have";
      })
      ->group(kGroup);
}

void add_submit_options(CLI::App& app, Flags& flags) {
  add_batch_options(app, flags, "hvdrun submit");
  app.add_option("-c,--cluster", flags.cluster, "Cluster that the job waits for; default: the only one")
      ->type_name("NAME")
      ->group("hvdrun submit");
  app.add_option("-n", flags.job_name, "As --name")->type_name("NAME")->group("hvdrun submit");
}

std::vector<OptionInfo> describe_options(const CLI::App& app) {
  std::vector<OptionInfo> all;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) {
      continue;  // not for users
    }
    OptionInfo info;
    for (const std::string& name : option->get_snames()) {
      info.names.push_back("-" + name);
    }
    for (const std::string& name : option->get_lnames()) {
      info.names.push_back("--" + name);
    }
    if (option->get_expected_max() > 0 && option->get_items_expected_max() > 0) {
      const std::string type = option->get_type_name();  // "S:FLOAT in [0 - 1]", with what CLI11 checks
      info.value = type.substr(0, type.find(':'));
      info.words = option == app.get_option_no_throw("--color")       ? kColorWords
                   : option == app.get_option_no_throw("--gpus")      ? kGpuWords
                   : option == app.get_option_no_throw("--bind")      ? kBindWords
                   : option == app.get_option_no_throw("--launcher")  ? kLauncherWords
                   : option == app.get_option_no_throw("--engine")    ? kEngineWords
                   : option == app.get_option_no_throw("--container") ? kContainerWords
                   : option == app.get_option_no_throw("--elastic")   ? kElasticWords
                   : option == app.get_option_no_throw("--kind")      ? kManifestKinds
                   : option == app.get_option_no_throw("--type")      ? bench::type_names()
                   : option == app.get_option_no_throw("--op")        ? bench::op_names()
                   : option == app.get_option_no_throw("--document")  ? kDocumentKinds
                                                                      : std::vector<std::string>();
    }
    info.help = option->get_description();
    info.group = option->get_group();
    all.push_back(std::move(info));
  }
  return all;
}

}  // namespace hvd::cli

// launcher/transport/mpirun and launcher/wire/engine_call: what stands on mpirun's command line, and what comes back.
#include "launcher/engines/mpirun.h"

#include <algorithm>

#include "launcher/job/host_list.h"
#include "launcher/wire/engine_call.h"
#include "tests/unit/launcher/transport/recording.h"

namespace hvd::launch::mpirun_test {

using hvd::launch::test::has;

namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

std::string command_line(const std::string& hosts, int size, const MpirunOptions& options) {
  const Placement placement = place(parse_host_list(hosts).value(), size).value();
  return joined(mpirun_words(placement, options, {"stack", {"10.0.0.1:5", "[fd00::1]:6"}}));
}

}  // namespace

TEST_CASE("mpirun is told of exactly the slots that ranks have") {
  struct Row {
    const char* hosts;
    int size;
    const char* words;
  };
  for (const Row& row : {Row{"a:2,b:2", 4, "-np 4 -H a:2,b:2 "}, Row{"a:4,b:4", 5, "-np 5 -H a:4,b:1 "},
                         Row{"a:1,b:3,c:9", 2, "-np 2 -H a:1,b:1 "}, Row{"localhost:8", 1, "-np 1 -H localhost:1 "}}) {
    CAPTURE(row.hosts);
    CHECK(has(command_line(row.hosts, row.size, {"/x/agent", {}, {}, {}, false}), row.words));
  }
}

TEST_CASE("the command line of mpirun, word for word") {
  MpirunOptions options;
  options.agent_path = "/x/agent";
  const std::string end = "-x HVD_CALL_SECRET /x/agent call mpirun stack 10.0.0.1:5 [fd00::1]:6";
  CHECK(command_line("a:2,b:1", 3, options) == "mpirun -np 3 -H a:2,b:1 --map-by slot --bind-to none " + end);
  options.is_root = true;
  CHECK(command_line("a:1", 1, options) ==
        "mpirun --allow-run-as-root -np 1 -H a:1 --map-by slot --bind-to none " + end);
  options.is_root = false;
  options.binding = {"--bind-to", "socket"};
  options.args = {"--mca", "btl", "tcp,self"};
  CHECK(command_line("10.0.0.7:1", 1, options) ==
        "mpirun -np 1 -H 10.0.0.7:1 --map-by slot --bind-to socket -x HVD_CALL_SECRET --mca btl tcp,self "
        "/x/agent call mpirun stack 10.0.0.1:5 [fd00::1]:6");
  CHECK(has(command_line("node1.cluster:1", 1, options),
            "--mca orte_keep_fqdn_hostnames 1 --mca prte_keep_fqdn_hostnames 1 "));
}

TEST_CASE("hosts that are too many for one word stand in a file") {
  const Placement placement = place(parse_host_list("node[00001-12000]:2").value(), 24'000).value();
  const EngineCommand command = mpirun_command(placement, {"/x/agent", {}, {}, {}, false}, {"stack", {}}, CallKey{});
  CHECK(has(joined(command.argv), "mpirun -np 24000 --hostfile /HOSTS --map-by slot "));
  CHECK(command.hosts.starts_with("node00001 slots=2\nnode00002 slots=2\n"));
  CHECK(command.hosts.ends_with("node12000 slots=2\n"));
  const Placement few = place(parse_host_list("a:2").value(), 2).value();
  CHECK(mpirun_command(few, {"/x/agent", {}, {}, {}, false}, {"stack", {}}, CallKey{}).hosts.empty());
}

TEST_CASE("what the user says of mapping and binding is not said a second time") {
  using Words = std::vector<std::string>;
  struct Row {
    Words args;
    Words binding;
    const char* words;
  };
  for (const Row& row : {
           Row{{}, {}, "--map-by slot --bind-to none -x S"},
           Row{{}, {"--map-by", "socket"}, "--map-by socket -x S"},
           Row{{}, {"--bind-to", "core", "--map-by", "core"}, "--bind-to core --map-by core -x S"},
           Row{{}, {"-rankfile", "file"}, "-rankfile file -x S"},
           Row{{}, {"--rank-by", "slot"}, "--map-by slot --rank-by slot -x S"},
           Row{{"--bind-to", "core"}, {}, "--map-by slot -x S --bind-to core"},
           Row{{"-bind-to-core"}, {}, "--map-by slot -x S -bind-to-core"},
           Row{{"--map-by", "node"}, {}, "--bind-to none -x S --map-by node"},
           Row{{"--map-by=node"}, {}, "--bind-to none -x S --map-by=node"},
           Row{{"-N", "1"}, {}, "--bind-to none -x S -N 1"},
           Row{{"--map-by", "slot:PE=2"}, {}, "-x S --map-by slot:PE=2"},
           Row{{"--cpu-set", "0,1"}, {}, "-x S --cpu-set 0,1"},
           Row{{"--map-by", "node"}, {"--bind-to", "core"}, "--bind-to core -x S --map-by node"},
           Row{{"--mca", "map-by", "N", "-"}, {}, "--map-by slot --bind-to none -x S --mca map-by N -"},
       }) {
    MpirunOptions options;
    options.args = row.args;
    options.binding = row.binding;
    std::string expected = row.words;
    expected.replace(expected.find("-x S"), 4, "-x HVD_CALL_SECRET");
    CHECK(has(command_line("a:1", 1, options), "-H a:1 " + expected + "  call mpirun"));
  }
}

TEST_CASE("the secret is in mpirun's environment only, and what another mpirun has left is not there") {
  CallKey key;
  key.secret.fill(0xA5);
  key.launcher.fill(0x5A);
  MpirunOptions options;
  options.environment = {"PATH=/bin",     "OMPI_COMM_WORLD_RANK=3", "PMIX_RANK=3", "OMPI_MCA_ess=env",
                         "OMPI_CC=clang", "OMPI_MCA_btl=tcp",       "RANK=3",      "OMPI_MCA_orte_num_nodes=1"};
  const Placement placement = place(parse_host_list("a:1").value(), 1).value();
  const EngineCommand command = mpirun_command(placement, options, {"stack", {"10.0.0.1:5"}}, key);
  const std::string text = call_key_text(key);
  CHECK(text.size() == 128);
  CHECK(command.environment ==
        std::vector<std::string>{"PATH=/bin", "OMPI_CC=clang", "OMPI_MCA_btl=tcp", "HVD_CALL_SECRET=" + text});
  CHECK(joined(command.argv).find(text) == std::string::npos);
  CHECK(command.name == "mpirun");
}

TEST_CASE("the user's own settings of Open MPI and PMIx reach mpirun, those of a launcher around it do not") {
  using Entries = std::vector<std::string>;
  const Placement placement = place(parse_host_list("a:1").value(), 1).value();
  const Entries users = {"OMPI_MCA_orte_tmpdir_base=/scratch", "PMIX_MCA_gds=hash", "PMIX_INSTALL_PREFIX=/mpi",
                         "PMIX_PREFIX=/mpi"};
  const auto left = [&](const Entries& more) {
    MpirunOptions options;
    options.environment = users;
    options.environment.insert(options.environment.end(), more.begin(), more.end());
    Entries environment = mpirun_command(placement, options, {}, CallKey{}).environment;
    environment.pop_back();  // the secret
    return environment;
  };
  CHECK(left({"RANK=3", "PMIX_SERVER_URI4=x", "PMIX_PREFIXES=x", "PMIX_NAMESPACE=x"}) == users);
  CHECK(left({"OMPI_COMM_WORLD_RANK=3", "PMIX_RANK=3"}).empty());
  CHECK(left({"PMIX_RANK=3"}) == Entries{users.front()});  // Slurm's, which sets nothing of Open MPI's
}

TEST_CASE("a secret is read as it was written, and nothing else is") {
  CallKey key;
  for (std::size_t i = 0; i < key.secret.size(); ++i) {
    key.secret[i] = static_cast<std::uint8_t>(i * 9);
    key.launcher[i] = static_cast<std::uint8_t>(i * 7 + 1);
  }
  CHECK(parse_call_key(call_key_text(key)).value() == key);
  for (const std::string& text :
       {std::string(), std::string(64, '0'), std::string(127, '0'), std::string(129, '0'), std::string(126, '0') + "g0",
        std::string(126, '0') + "0g", std::string(62, '0') + "-1" + std::string(64, '0'), std::string(126, '0') + "-1",
        std::string(126, '0') + " 1"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_call_key(text).ok());
  }
}

TEST_CASE("an agent knows its place from what Open MPI tells it") {
  const std::vector<std::string> good = {"OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8",
                                         "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4"};
  const auto seat = seat_from("mpirun", good);
  REQUIRE(seat.ok());
  CHECK(seat.value().rank == 5);
  CHECK(seat.value().size == 8);
  CHECK(seat.value().local_rank == 1);
  CHECK(seat.value().local_size == 4);
  CHECK(has(seat_from("pbs", good).error().message(), "no such engine: 'pbs'"));
  for (const char* wrong : {"OMPI_COMM_WORLD_RANK=", "OMPI_COMM_WORLD_RANK=-1", "OMPI_COMM_WORLD_RANK=1x",
                            "OMPI_COMM_WORLD_RANK=99999999999"}) {
    std::vector<std::string> environment = good;
    environment.emplace_back(wrong);
    CAPTURE(wrong);
    CHECK_FALSE(seat_from("mpirun", environment).ok());
  }
  CHECK_FALSE(seat_from("mpirun", {}).ok());
}

TEST_CASE("what mpirun says tells what kind of failure it was") {
  CHECK(mpirun_failure("There are not enough slots available in the system").code == Code::kInvalid);
  CHECK(mpirun_failure("mpirun: Error: unknown option \"--x\"").code == Code::kInvalid);
  CHECK(
      mpirun_failure("ssh: Could not resolve hostname b: Name or service not known\nORTE was unable to reliably start "
                     "one or more daemons.")
          .code == Code::kUnreachable);
  const EngineFailure changed =
      mpirun_failure("Host key verification failed.\nORTE was unable to reliably start one or more daemons.");
  CHECK(changed.code == Code::kUnreachable);
  CHECK(has(changed.advice, "known_hosts"));
  CHECK(has(mpirun_failure("as it could not access\nor execute an executable:").advice,
            "at the same path on every host"));
  CHECK(mpirun_failure("hvdrun-agent: error: cannot call hvdrun back (10.0.0.1:5: no answer)").code ==
        Code::kUnreachable);
  CHECK(mpirun_failure("").code == Code::kSystem);
}

TEST_CASE("the words of Open MPI 5 are known too") {
  for (const char* words :
       {"An unrecognized option was included on the mpirun command line:\n\n  Option: --no-such-option\n",
        "ERROR: The \"mapby\" command line option was listed more than once on the command line.",
        "When resolving deprecated command line options, the result generated\ntoo many directives for the target "
        "option:",
        "The PE=<list> mapping directive cannot be combined with a\nbinding directive other than",
        "The specified mapby directive is not recognized:\n\n  Directive: foo\n",
        "The specified mapping policy is not recognized:\n\n  Policy: foo\n"}) {
    CAPTURE(words);
    CHECK(mpirun_failure(words).code == Code::kInvalid);
    CHECK(has(mpirun_failure(words).advice, "--binding-args"));
  }
  const EngineFailure program = mpirun_failure("as it could not\naccess an executable:\n\n   Executable: /x/agent\n");
  CHECK(program.code == Code::kSystem);
  CHECK(has(program.advice, "at the same path on every host"));
  const std::string daemon = "A daemon failed to report back after being spawned. This could\nbe due to";
  CHECK(mpirun_failure(daemon).code == Code::kUnreachable);
  CHECK(has(mpirun_failure(daemon).advice, "prted --version"));
  CHECK(has(mpirun_failure("ssh: Host key verification failed.\n" + daemon).advice, "known_hosts"));
}

TEST_CASE("Open MPI from 4 on is known by its own words, and no other MPI is") {
  CHECK(open_mpi_in("mpirun (Open MPI) 4.1.4\n\nReport bugs to ...\n").value() == "Open MPI 4.1.4");
  CHECK(open_mpi_in("mpirun (Open MPI) 5.0.3rc1\n").value() == "Open MPI 5.0.3rc1");
  CHECK(open_mpi_in("mpirun (Open MPI) 10.0.0").value() == "Open MPI 10.0.0");
  CHECK(has(open_mpi_in("mpirun (Open MPI) 3.1.6\n").error().message(), "of Open MPI 3.1.6; install Open MPI 4"));
  CHECK(
      has(open_mpi_in("HYDRA build details:\n    Version: 4.0\n").error().message(), "it says 'HYDRA build details:'"));
  CHECK_FALSE(open_mpi_in("").ok());
}

TEST_CASE("the first paragraph of what an engine says is quoted, without the frames that it draws") {
  CHECK(first_paragraph({"-----", "", "  There are not", "enough slots", "", "more"}) == "There are not enough slots");
  CHECK(first_paragraph({"ssh: no", "------", "ORTE"}) == "ssh: no");
  CHECK(first_paragraph({"---", "An option:", "", "  Option: --x", "", "See"}) == "An option: Option: --x");
  CHECK(first_paragraph({"not found:", "", "---"}) == "not found:");
  CHECK(first_paragraph({"", "---"}).empty());
  CHECK(first_paragraph({}).empty());
  CHECK(first_paragraph(std::vector<std::string>(100, "a")) == "a a a a a a a a");
}

namespace {

// A shell in place of mpirun.
struct Run {
  explicit Run(const std::string& script) {
    EngineCommand command;
    command.name = "sh";
    command.argv = {"/bin/sh", "-c", script};
    command.failure_in = [](std::string_view output) {
      return EngineFailure{output.find("slots") != std::string_view::npos ? Code::kInvalid : Code::kSystem, "try more"};
    };
    engine = std::make_unique<Engine>(*loop, command);
    Engine::Handlers handlers;
    handlers.on_line = [this](const std::string& line) { lines.push_back(line); };
    handlers.on_over = [this](const Error& why) { over = why; };
    REQUIRE(engine->start(std::move(handlers)).ok());
  }
  void finish() {
    const Deadline deadline = Deadline::after(std::chrono::minutes(5));
    while (!over) {
      REQUIRE_FALSE(deadline.has_passed());
      REQUIRE(loop->turn(deadline).ok());
    }
  }
  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();
  std::unique_ptr<Engine> engine;
  std::vector<std::string> lines;
  std::optional<Error> over;
};

}  // namespace

TEST_CASE("an engine's words come line by line, and its end with the first of them") {
  Run run("cat; printf -- '-----\\nno slo'; printf 'ts\\r\\n'; printf '\\nmore\\nrest' >&2; exit 3");
  run.finish();
  CHECK_FALSE(run.engine->is_running());
  CHECK(run.over->code() == Code::kInvalid);
  std::sort(run.lines.begin(), run.lines.end());
  CHECK(run.lines == std::vector<std::string>{"more", "no slots", "rest"});
  CHECK(has(run.over->message(), "sh exited with code 3; it said: "));
  CHECK(has(run.over->message(), "; try more"));
}

TEST_CASE("an engine that is killed is told so, and one that is not needed any more is ended") {
  Run killed("kill -9 $$");
  killed.finish();
  CHECK(has(killed.over->message(), "sh was killed by signal 9 (SIGKILL)"));
  Run running("exec sleep 1000");
  CHECK(running.engine->is_running());
  running.engine.reset();
}

}  // namespace hvd::launch::mpirun_test

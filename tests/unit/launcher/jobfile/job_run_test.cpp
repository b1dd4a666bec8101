// launcher/jobfile: the processes, directories and scripts of a job that runs.
#include "launcher/jobfile/job_run.h"

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/jobfile/container_command.h"
#include "tests/unit/launcher/jobfile/jobs.h"

namespace hvd::launch::jobfile_test {

TEST_CASE("each host's name in names of files is unique, also where characters are replaced") {
  CHECK(file_ids({"fe80::1%eth0", "a", "fe80__1_eth0", "a"}) ==
        std::vector<std::string>{"fe80__1_eth0", "a", "fe80__1_eth0_2", "a_3"});
}

TEST_CASE("processes are spread evenly over the first hosts that the job needs") {
  const JobFile job = job_of("command: x\nnodeCount: 3\nprocessCount: 8\n");
  const auto hosts = parse_host_list("a,b:9,c,d").value();
  const JobLayout layout = lay_out(job, hosts, 0).value();
  CHECK(layout.size() == 8);
  CHECK(layout.ids == std::vector<std::string>{"a", "b", "c"});
  CHECK(layout.nodes[0].slots == 3);
  CHECK(layout.nodes[2].slots == 2);
  CHECK(layout.rank_placement().node_of(7).host.name == "c");
  CHECK(lay_out(job, hosts, 3).value().size() == 3);
  CHECK(lay_out(job, hosts, 2).error().message().find("too few processes (2) for 3 nodes") != std::string::npos);
  CHECK(lay_out(job, parse_host_list("a,b").value(), 0).error().message() ==
        "job.yaml:2:12: the job needs 3 nodes, and there are 2 hosts; name more with -H or --hostfile, or a larger "
        "cluster");
}

TEST_CASE("TensorFlow's processes get roles, ports and a cluster; one that is alone gets no cluster") {
  const std::string settings =
      "properties:\n  nodeCount: %\n  stdOutErrPathPrefix: /l\n  tensorFlowSettings:\n    pythonScriptFilePath: s.py\n";
  std::string two = settings;
  two.replace(two.find('%'), 1, "2");
  const JobRun run = run_of(two, "a,b");
  const std::vector<JobNodeFacts> facts = {{"10.0.0.4", "65534", 0}, {"10.0.0.5", "3000", 0}};
  REQUIRE(run.layout.size() == 3);
  CHECK(run.layout.processes[1].role == JobProcess::Role::kServer);
  CHECK(value_in(process_variables(run, facts, 0), "AZ_BATCHAI_WORKER_HOSTS") == "10.0.0.4:65535,10.0.0.5:3000");
  CHECK(value_in(process_variables(run, facts, 0), "AZ_BATCHAI_PS_HOSTS") == "10.0.0.4:65534");
  CHECK(value_in(process_variables(run, facts, 2), "TF_CONFIG") ==
        "{\"cluster\":{\"ps\":[\"10.0.0.4:65534\"],\"worker\":[\"10.0.0.4:65535\",\"10.0.0.5:3000\"]},"
        "\"task\":{\"type\":\"worker\",\"index\":1},\"environment\":\"cloud\"}");
  CHECK(process_file(run, 1, false) == "stdout-ps-0.txt");
  std::string one = settings;
  one.replace(one.find('%'), 1, "1");
  CHECK(value_in(process_variables(run_of(one, "a"), {facts[0]}, 0), "TF_CONFIG") ==
        "{\"cluster\":{},\"task\":{\"type\":\"worker\",\"index\":0},\"environment\":\"cloud\"}");
}

TEST_CASE(
    "an elastic job takes the hosts that there are, with as many processes on each; hosts join it and come back") {
  const std::string text =
      "minNodes: 1\nnodeCount: 2\nmaxNodes: 3\nprocessCount: 4\ncommand: work\nprepare: get ready\n";
  CHECK(run_of(text, "a").layout.size() == 2);
  CHECK(run_of(text, "a,b,c,d").layout.size() == 6);
  JobRun run = run_of(text, "a,b:9");
  CHECK(run.layout.size() == 4);
  CHECK(run.layout.nodes[1].slots == 2);
  const HostSpec host = run.layout.nodes[0];
  run.layout.add_node(host, 2);
  CHECK(run.layout.ids == std::vector<std::string>{"a", "b", "a"});
  CHECK(run.layout.size() == 6);
  CHECK(run.layout.processes[5].node == 2);
  CHECK(run.layout.processes[5].index == 5);
  // a was lost before it came back.
  const std::vector<JobNodeFacts> facts = {{}, {"10.0.0.5", "3000", 0}, {"10.0.0.4", "3001", 0}};
  const Settings env = process_variables(run, facts, 5);
  CHECK(value_in(env, "AZ_BATCH_HOST_LIST") == "10.0.0.5,10.0.0.4");
  CHECK(value_in(env, "AZ_BATCH_MASTER_NODE") == "10.0.0.5:3000");
  CHECK(value_in(env, "AZ_BATCH_IS_CURRENT_NODE_MASTER") == "false");
  CHECK(value_in(env, "AZ_BATCHAI_TASK_INDEX") == "5");
  JobTexts texts("/agent");
  texts.add(joining_script(run, facts, 5, texts).value());
  CHECK(texts.joined().find("get ready") < texts.joined().find("work"));
  CHECK(node_log_file(run, 2) == "execution-a.log");
}

TEST_CASE("mounts lead where the map says, the cluster's too; output is kept in the mount") {
  JobRunOptions options;
  options.mounts.named = {{"b", "/special"}};
  options.mounts.root = "/data";
  const JobRun run = run_of(
      "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: $AZ_BATCHAI_JOB_MOUNT_ROOT/b/logs/\n"
      "  customToolkitSettings: {commandLine: ls $AZ_BATCHAI_MOUNT_ROOT/external/x}\n"
      "  mountVolumes: {unmanagedFileSystems: [{mountCommand: m, relativeMountPath: a}, {mountCommand: m, "
      "relativeMountPath: b}]}\n",
      "h", options);
  REQUIRE(run.job.mounts.size() == 3);
  CHECK(run.job.mounts[0].directory == "/data/a");
  CHECK(run.job.mounts[1].directory == "/special");
  CHECK(run.job.mounts[2].directory == "/data/external");
  CHECK(run.job.mounts[2].is_of_cluster);
  CHECK(run.kept_at == "/special/logs/" + run.segment + "/stdouterr");
  CHECK(run.output == "/tmp/hvdrun-job-1d/mounts/b/logs/" + run.segment + "/stdouterr");
  CHECK(run.segment ==
        "00000000-0000-0000-0000-000000000000/hvdrun/workspaces/default/experiments/default/jobs/job/uuid");
}

TEST_CASE("what containers leave that their user may not remove is removed by one, while the image is there") {
  const std::string text = "command: x\ncontainer: image\nmounts: {m: /data}\noutput: ";
  for (const bool is_in_mount : {false, true}) {
    const JobRun run = run_of(text + (is_in_mount ? "$AZ_BATCHAI_JOB_MOUNT_ROOT/m\n" : "/logs\n"), "h");
    const std::string script = clean_up_script(run);
    const auto emptied = script.find("\n  hvdrun_empty " + run.root + "\n");
    CHECK(emptied < script.find(" rmi -f "));
    CHECK(script.find(" rmi -f ") < script.find(" remove " + run.root));
    CHECK((script.find("\n  hvdrun_empty " + run.shared_at() + "\n") < script.find(" rmi -f ")) == is_in_mount);
  }
  CHECK(clean_up_script(run_of("command: x\n", "h")).find("hvdrun_empty") == std::string::npos);
}

TEST_CASE("two slashes in a path are one") {
  JobRunOptions options;
  options.mounts.root = "/data";
  const std::string text = "command: x\nmounts: {b: }\noutput: $AZ_BATCHAI_JOB_MOUNT_ROOT//b//logs\n";
  const JobRun run = run_of(text, "h", options);
  CHECK(run.kept_at == "/data/b/logs/" + run.segment + "/stdouterr");
}

TEST_CASE("output with a relative path is in the folder where the processes start, however that is seen") {
  JobRunOptions options;
  options.cwd = "/home/me";
  const std::string own = "command: x\noutput: logs\n";
  const JobRun run = run_of(own, "h", options);
  CHECK(run.kept_at == "/home/me/logs/" + run.segment + "/stdouterr");
  CHECK(run.output == run.kept_at);
  CHECK(run_of("command: x\noutput: ././logs/\n", "h", options).kept_at == run.kept_at);
  CHECK(run_of("command: x\noutput: .\n", "h", options).kept_at == "/home/me/" + run.segment + "/stdouterr");
  const std::string batchai =
      "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: logs\n  customToolkitSettings: {commandLine: x}\n"
      "  outputDirectories: [{id: M, pathPrefix: models}, {id: V, pathPrefix: $DIR/models}]\n";
  const JobRun in_temp = run_of(batchai, "h", options);
  CHECK(in_temp.kept_at.empty());
  CHECK(in_temp.output == in_temp.temp() + "/logs/" + in_temp.segment + "/stdouterr");
  const std::string variables = exported_variables(in_temp);
  CHECK(variables.find("AZ_BATCHAI_OUTPUT_M=" + in_temp.temp() + "/models/") != std::string::npos);
  CHECK(variables.find("AZ_BATCHAI_OUTPUT_V=\"${DIR-}\"/models/") != std::string::npos);
  options.is_synced = true;  // the nodes have that folder elsewhere
  for (const std::string& text : {own, batchai}) {
    const JobRun synced = run_of(text, "h", options);
    CHECK(synced.kept_at == "/home/me/logs/" + synced.segment + "/stdouterr");
    CHECK(synced.output == "logs/" + synced.segment + "/stdouterr");
  }
}

TEST_CASE("-x wins over the file in the output's path too") {
  JobRunOptions options;
  const std::string text = "command: x\nenv: {OUT: /a}\noutput: $OUT/logs\n";
  CHECK(run_of(text, "h").kept_at.starts_with("/a/logs/"));
  options.overridden = {{"OUT", "/b"}};
  CHECK(run_of(text, "h", options).kept_at.starts_with("/b/logs/"));
}

TEST_CASE("directories may name the file's variables, and variables directories") {
  const std::string begin =
      "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: /o\n  customToolkitSettings: {commandLine: x}\n"
      "  inputDirectories: [{id: X, path: /in}]\n  outputDirectories: [{id: M, pathPrefix: $OUT/m, createNew: False}]\n"
      "  environmentVariables: [{name: A, value: $AZ_BATCHAI_INPUT_X/a}, {name: B, value: $A/b}, {name: OUT, value: "
      "/out}]\n";
  const JobRun run = run_of(begin, "h");
  CHECK_FALSE(run.job.outputs.front().is_new);
  const std::string text = exported_variables(run);
  const auto at = [&text](const char* name) { return text.find(std::string("export ") + name + "="); };
  CHECK(at("OUT") < at("AZ_BATCHAI_OUTPUT_M"));
  CHECK(at("AZ_BATCHAI_INPUT_X") < at("A"));
  CHECK(at("A") < at("B"));
  CHECK(at("B") != std::string::npos);
}

TEST_CASE("an image's own variables are extended: those of the file are not taken from the host") {
  JobRunOptions options;
  options.container = ContainerChoice::kDocker;
  const std::string text = "command: x\ncontainer: i\nenv: {PATH: '/w:$PATH'}\nsecrets: {KEY: k}\n";
  CHECK(process_of(run_of(text, "h", options)).find("|PATH") == std::string::npos);
  CHECK(process_of(run_of(text, "h", options)).find("|KEY") != std::string::npos);
  options.overridden = {{"PATH", "/x"}};
  CHECK(process_of(run_of(text, "h", options)).find("|PATH") != std::string::npos);
}

TEST_CASE("an image without a registry is Docker Hub's under podman too") {
  const auto hub_name = [](const std::string& image) {
    const JobRun run = run_of("command: x\ncontainer: " + image + "\n", "h");
    const std::string text = process_of(run);
    CHECK(text.find("docker://" + image) != std::string::npos);  // apptainer knows
    const std::string before = "|| hvdrun_image=";
    const std::size_t at = text.find(before);
    CHECK((fetch_image(run).find(before) == std::string::npos) == (at == std::string::npos));
    const std::size_t begin = at + before.size();
    return at == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
  };
  CHECK(hub_name("tensorflow/tensorflow:1.8.0-gpu") == "docker.io/tensorflow/tensorflow:1.8.0-gpu");
  CHECK(hub_name("python:3.11") == "docker.io/library/python:3.11");
  CHECK(hub_name("a/b/c") == "docker.io/a/b/c");
  for (const char* whole : {"docker.io/a/b", "acr.io/b", "localhost/b", "localhost:5000/b", "registry:5000/b"}) {
    CHECK(hub_name(whole) == "");
  }
  // What preparation has made of it is the node's own.
  const std::string text = process_of(run_of("command: x\nprepare: y\ncontainer: a/b\n", "h"));
  CHECK(text.find("docker.io") == std::string::npos);
}

TEST_CASE("what the ranks' container lacks is told of Horovod's toolkit alone, which the short form does not name") {
  const std::string batchai =
      "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: /o\n  horovodSettings: {pythonScriptFilePath: s.py}\n"
      "  containerSettings: {imageSourceRegistry: {image: i}}\n";
  const std::string told = "a script that imports horovod needs it";
  CHECK(process_of(run_of(batchai, "h")).find(told) != std::string::npos);
  CHECK(process_text(run_of(batchai, "h"), 0).value().find(told) == std::string::npos);  // what a pod runs
  CHECK(process_of(run_of("script: ddp.py\ncontainer: i\n", "h")).find(told) == std::string::npos);
}

TEST_CASE("nodes that are reached at IPv6 addresses have brackets before a port") {
  const std::string text =
      "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: /o\n"
      "  pyTorchSettings: {pythonScriptFilePath: x.py, communicationBackend: gloo}\n";
  const std::vector<JobNodeFacts> facts = {{"fd00::1", "4000", 0}};
  const Settings env = process_variables(run_of(text, "h"), facts, 0);
  CHECK(value_in(env, "AZ_BATCHAI_PYTORCH_INIT_METHOD") == "tcp://[fd00::1]:4000");
  CHECK(value_in(env, "AZ_BATCH_MASTER_NODE") == "[fd00::1]:4000");
  CHECK(value_in(env, "AZ_BATCH_HOST_LIST") == "fd00::1");
}

TEST_CASE("passwords in a mount command are shown nowhere") {
  const std::string text =
      "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: /o\n  customToolkitSettings: {commandLine: x}\n"
      "  mountVolumes: {unmanagedFileSystems: [{relativeMountPath: a, mountCommand: "
      "'mount -t cifs //s/x -o username=u,password=hunter22,vers=3'}]}\n";
  CHECK(job_of(text).hidden == std::vector<std::string>{"hunter22"});
  const auto run = make_job_run(job_of(text), lay_out(job_of(text), parse_host_list("h").value(), 0).value(), {});
  REQUIRE(!run.ok());
  CHECK(run.error().message().find("no directory of the nodes is given for 'a'") != std::string::npos);
  CHECK(run.error().message().find("hunter22") == std::string::npos);
}

TEST_CASE("what the cluster mounts for the job wins over its mount root, and what is mapped by name over both") {
  JobRunOptions options;
  options.mounts.named = {{"c", "/special"}};
  options.mounts.root = "/data";
  options.mounts.file_systems = {{"b", "nfs", "server:/export", "ro", "", "", "/here", ""},
                                 {"c", "nfs", "server:/other", "", "", "", "", ""}};
  const JobRun run =
      run_of("command: x\nmounts: {a: , b: , c: }\noutput: $AZ_BATCHAI_JOB_MOUNT_ROOT/b\n", "h", options);
  REQUIRE(run.job.mounts.size() == 3);
  CHECK(run.job.mounts[0].directory == "/data/a");
  CHECK(run.job.mounts[1].file_system.has_value());
  CHECK(run.job.mounts[2].directory == "/special");
  CHECK(run.kept_at == "/here/" + run.segment + "/stdouterr");
  CHECK(run.shared_at() == run.mount_root() + "/b/" + run.segment + "/shared");
  JobTexts cleaning("/agent");
  clean_mounts_script(run, cleaning);
  CHECK(cleaning.joined().find("remove " + run.shared_at()) != std::string::npos);
  CHECK(clean_up_script(run).find(run.shared_at()) == std::string::npos);
  CHECK(set_up_of(run, {{}}).find("mount -t nfs -o ro -- server:/export") != std::string::npos);
}

TEST_CASE(
    "a password for a mount is in the environment of whoever mounts and in no script; without one nothing starts") {
  JobRunOptions options;
  options.mounts.file_systems = {{"a", "cifs", "//server/share", "", "me", "KEY", "", "pass-word"}};
  const std::string text = "command: x\nmounts: {a: }\n";
  const JobRun run = run_of(text, "h", options);
  const std::vector<JobNodeFacts> facts = {{"10.0.0.4", "3000", 0}};
  CHECK(value_in(process_variables(run, facts, 0), "HVDRUN_MOUNT_PASSWORD_0") == "pass-word");
  CHECK(set_up_of(run, facts).find("pass-word") == std::string::npos);
  CHECK(process_of(run).find("pass-word") == std::string::npos);
  for (const char* password : {"", "two\nlines"}) {
    options.mounts.file_systems[0].password = password;
    JobFile job = job_of(text);
    auto layout = lay_out(job, parse_host_list("h").value(), 0);
    const auto refused = make_job_run(std::move(job), std::move(layout).value(), options);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message().starts_with("job.yaml:2:10: the mount 'a'"));
  }
}

TEST_CASE("all mounts without a directory are named at once") {
  JobFile job = job_of("command: x\nmounts: {one: , two: , three: /3}\n");
  auto layout = lay_out(job, parse_host_list("h").value(), 0);
  const auto run = make_job_run(job, layout.value(), {});
  REQUIRE_FALSE(run.ok());
  CHECK(run.error().message().starts_with("job.yaml:2:10: no directory of the nodes is given for 'one', 'two' ("));
}

TEST_CASE("secrets are in the environment and in no script") {
  const JobRun run = run_of("command: x\nsecrets: {TOKEN: abc-secret, FROM_ME: }\nprepare: y\n", "h");
  const std::vector<JobNodeFacts> facts = {{"10.0.0.4", "3000", 0}};
  CHECK(value_in(process_variables(run, facts, 0), "TOKEN") == "abc-secret");
  CHECK(value_in(node_variables(run, facts, 0), "FROM_ME") == "here");
  CHECK(run.job.hidden == std::vector<std::string>{"abc-secret", "here"});
  CHECK(set_up_of(run, facts).find("abc-secret") == std::string::npos);
  CHECK(process_of(run).find("abc-secret") == std::string::npos);
}

TEST_CASE("only what calls MPI itself is started by MPI") {
  const auto needs = [](const std::string& settings, int nodes) {
    const JobFile job = job_of("properties:\n  nodeCount: " + std::to_string(nodes) +
                               "\n  stdOutErrPathPrefix: /l\n  " + settings + "\n");
    return needs_mpi(job, lay_out(job, parse_host_list("a,b").value(), 0).value());
  };
  CHECK(needs("customMpiSettings: {commandLine: x}", 2));
  CHECK_FALSE(needs("customMpiSettings: {commandLine: x}", 1));
  CHECK(needs("chainerSettings: {pythonScriptFilePath: x}", 2));
  CHECK(needs("pyTorchSettings: {pythonScriptFilePath: x, communicationBackend: MPI}", 2));
  CHECK_FALSE(needs("pyTorchSettings: {pythonScriptFilePath: x, communicationBackend: gloo}", 2));
  CHECK_FALSE(needs("horovodSettings: {pythonScriptFilePath: x}", 2));
  CHECK_FALSE(needs("customToolkitSettings: {commandLine: x}", 2));
}

TEST_CASE("no value of a job file stands on a command line, and no text more than once in the node's files") {
  const JobRun run = run_of("command: x\nenv: {APP_PW: hunter2hunter2}\nprocessCount: 3\n", "h");
  JobTexts texts("/tmp/hvdrun-x");
  std::string words;
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::string& word : bash_words(texts.add(process_script(run, rank, texts).value()))) {
      words += word + "\n";
    }
  }
  CHECK(words.find("hunter2") == std::string::npos);
  CHECK(words.find("/tmp/hvdrun-x/text-0\n") != std::string::npos);
  REQUIRE(texts.files().size() == 1);
  CHECK(texts.files().front().second.find("export APP_PW=hunter2hunter2") != std::string::npos);
}

TEST_CASE("what is mounted for a job, or run in a container, is told what to run by files too") {
  JobRunOptions options;
  options.mounts.file_systems = {{"a", "nfs", "server:/export", "", "", "", "", ""}};
  const std::string text = "command: x\nenv: {APP_PW: hunter2hunter2}\nprepare: y\n";
  for (const JobRun& run : {run_of(text + "mounts: {a: }\n", "h", options), run_of(text + "container: image\n", "h")}) {
    const std::vector<JobNodeFacts> facts = {{"10.0.0.4", "3000", 0}};
    JobTexts texts("/agent");
    for (const std::string& script :
         {process_script(run, 0, texts).value(), set_up_script(run, facts, 0, texts).value()}) {
      // What stands in the file that bash reads is its own; what it passes on to others is a path.
      CHECK(script.find("-c 'export") == std::string::npos);
      CHECK(script.find("/agent/text-") != std::string::npos);
    }
    for (const auto& [name, file] : texts.files()) {
      CHECK((file.find("hunter2") == std::string::npos ||
             file.find("export APP_PW=hunter2hunter2\n") != std::string::npos));
    }
  }
}

TEST_CASE("what the kernel would not hand to a program is refused by its place") {
  const auto refused = [](const std::string& text) {
    const auto checked = check_word_sizes(run_of(text, "h"));
    return checked.ok() ? "" : checked.error().message();
  };
  const std::string most(131071 - 5, 'x');  // with "NAME="
  CHECK(refused("command: x\nenv: {NAME: " + most + "}\n").empty());
  CHECK(refused("command: x\nenv: {NAME: " + most + "x}\n")
            .starts_with("job.yaml:2:7: the variable NAME has 131072 bytes with its name"));
  const std::string word(131071, 'y');
  CHECK(refused("script: s.py\nargs: a " + word + " '" + word + "'\n").empty());
  CHECK(refused("script: s.py\nargs: a " + word + "y b\n").find("an argument has 131072 bytes") != std::string::npos);
  CHECK(refused("command: echo " + word + word + "\n").empty());  // shell text, which only bash reads
}

TEST_CASE("~/ is the home on the node where a shell would take it so: of scripts, interpreters and arguments") {
  const std::string text = "script: ~/a.py\npython: ~/venv/bin/python\nargs: ";
  CHECK(process_text(run_of(text + "~/d ~ x~/ --d=~/e '~/f' ~me ~\"/g\"\n", "h"), 0)
            .value()
            .ends_with("exec -- \"${HOME-}\"/venv/bin/python \"${HOME-}\"/a.py \"${HOME-}\"/d \"${HOME-}\" 'x~/' "
                       "'--d=~/e' '~/f' '~me' '~'/g\n"));
  CHECK(process_text(run_of(text + "[~/d]\n", "h"), 0).value().ends_with("/a.py '~/d'\n"));  // as it is written
  const std::string batchai = "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: /l\n  horovodSettings: ";
  CHECK(process_text(run_of(batchai + "{pythonScriptFilePath: ~/a.py}\n", "h"), 0)
            .value()
            .ends_with(" \"${HOME-}\"/a.py\n"));
}

TEST_CASE("BrainScript is run by cntk, over MPI where it has several processes") {
  const std::string text = "properties:\n  nodeCount: 2\n  stdOutErrPathPrefix: /l\n  cntkSettings: {";
  const JobRun run = run_of(text + "configFilePath: $DIR/a b.cntk, commandLineArgs: 'rootDir=$OUT x'}\n", "a,b");
  CHECK(process_text(run, 0).value().ends_with("exec -- cntk configFile=\"${DIR-}\"'/a b.cntk' 'rootDir='${OUT-} x\n"));
  CHECK(needs_mpi(run.job, run.layout));
  CHECK(refusal_of(text + "languageType: BrainScript, pythonScriptFilePath: a.py}\n")
            .find("whose programs are named by configFilePath") != std::string::npos);
  CHECK(refusal_of(text + "languageType: Python, configFilePath: a}\n").find("named by pythonScriptFilePath") !=
        std::string::npos);
  CHECK(refusal_of(text + "languageType: BrainScript, configFilePath: a}\n").empty());
}

}  // namespace hvd::launch::jobfile_test

// launcher/jobfile: what a file says of its job, and what is wrong with it.
#include "launcher/jobfile/form_reader.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/launcher/jobfile/jobs.h"

namespace hvd::launch::jobfile_test {

TEST_CASE("a wrong type, a missing key and a misspelt one each name their place") {
  CHECK(refusal_of("prepare: [1]\n") == "job.yaml:1:10: prepare: expected text, found a list");
  CHECK(refusal_of("prepare: 5\n") == "job.yaml:1:10: prepare: expected text; write it in quotes, found 5");
  CHECK(refusal_of("command: 5\n") == "job.yaml:1:10: command: expected text in quotes, or a list of texts, found 5");
  CHECK(refusal_of("command: [[x]]\n") == "job.yaml:1:11: command: expected a list of texts, found a list");
  CHECK(refusal_of("command: []\n") == "job.yaml:1:10: the script or command is empty; say what to start");
  CHECK(refusal_of("nodeCount: 1.0\ncommand: x\n").starts_with("job.yaml:1:12: nodeCount: expected a whole number"));
  CHECK(refusal_of("nodeCount: '2'\ncommand: x\n") ==
        "job.yaml:1:12: nodeCount: expected a whole number from 1 to 100000, without quotes, found the text '2'");
  CHECK(refusal_of("script: ''\n") == "job.yaml:1:9: the script or command is empty; say what to start");
  CHECK(
      refusal_of("command: x\nenvironment: {A: b}\n") ==
      "job.yaml:2:1: the key 'environment' means nothing in a job file; hvdrun --document schema shows those that do");
  CHECK(refusal_of("properties: {stdOutErrPathPrefix: /l}\n").find("the key 'nodeCount' is missing") !=
        std::string::npos);
  CHECK(refusal_of("command: x\nprocesCount: 2\n$comment: 1\nzzz: 1\n") ==
        "job.yaml:2:1: the key 'procesCount' means nothing in a job file; did you mean 'processCount'?\n"
        "  job.yaml:4:1: the key 'zzz' means nothing in a job file");
  const auto loaded = parse_job_file(
      R"({"properties": {"nodeCount": 1, "nodeCuont": 2, "stdOutErrPathPrefix": "/l", "customToolkitSettings": {"commandLine": "x"}}})",
      "job.json", {});
  REQUIRE(loaded.ok());
  CHECK(loaded.value().notices ==
        Notices{"job.json:1:33: the key 'nodeCuont' means nothing in properties; did you mean 'nodeCount'? (ignored)"});
}

TEST_CASE("a name that leads nowhere is told once, with the one that was meant") {
  const auto told = [](const std::string& more) {
    const auto loaded = parse_job_file(
        R"({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l",
"mountVolumes": {"azureFileShares": [{"azureFileUrl": "https://a.file/s", "relativeMountPath": "share"}]},
"inputDirectories": [{"id": "DATASET", "path": "$AZ_BATCHAI_JOB_MOUNT_ROOT/share/in"}],
)" + more + "}}",
        "job.json", {});
    REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
    return loaded.value().notices;
  };
  const std::string tool = R"("horovodSettings": {"pythonScriptFilePath": "t.py", "commandLineArgs": ")";
  CHECK(told(tool + "$AZ_BATCHAI_JOB_MOUNT_ROOT/share/a ${AZ_BATCHAI_INPUT_DATASET} $OTHER\"}").empty());
  CHECK(told(tool + "$AZ_BATCHAI_JOB_MOUNT_ROOT/$X/a $AZ_BATCHAI_JOB_MOUNT_ROOT\"}").empty());
  CHECK(told(tool + "$AZ_BATCHAI_INPUT_DATASTE $AZ_BATCHAI_INPUT_DATASTE $AZ_BATCHAI_OUTPUT_M\"}") ==
        Notices{"job.json:4:72: nothing here sets $AZ_BATCHAI_INPUT_DATASTE: the file has no input directory 'DATASTE' "
                "(did you mean $AZ_BATCHAI_INPUT_DATASET?)",
                "job.json:4:72: nothing here sets $AZ_BATCHAI_OUTPUT_M: the file has no output directory 'M'"});
  const std::string output =
      R"(, "outputDirectories": [{"id": "M", "pathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/shrae/out"}])";
  CHECK(told(tool + "$AZ_BATCHAI_OUTPUT_M\"}" + output) ==
        Notices{"job.json:4:145: nothing is mounted at $AZ_BATCHAI_JOB_MOUNT_ROOT/shrae (did you mean 'share'?); "
                "what the job's programs write there is removed at its end"});
  const std::string prepared =
      R"(, "jobPreparation": {"commandLine": "mount -t nfs a:/b $AZ_BATCHAI_JOB_MOUNT_ROOT/shrae"})";
  CHECK(told(tool + "\"}" + output + prepared).empty());
}

TEST_CASE("placeholders are filled from what the user says, or refused where they stand") {
  const std::string text =
      R"({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l", "customToolkitSettings": {"commandLine": "x"},
"mountVolumes": {"azureFileShares": [{"azureFileUrl": "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file/a", "relativeMountPath": "a"}]}}})";
  CHECK(job_of(text, "f.json").mounts.front().source == "https://account.file/a");
  const auto without = parse_job_file(text, "f.json", {});
  REQUIRE(without.ok());
  CHECK(without.value().job.mounts.front().source == "https://<AZURE_BATCHAI_STORAGE_ACCOUNT>.file/a");
  CHECK(refusal_of("command: x\nargs: [<AZURE_BATCHAI_STORAGE_ACCOUNT>]\n")
            .starts_with("job.yaml:2:8: <AZURE_BATCHAI_STORAGE_ACCOUNT> stands here"));
}

TEST_CASE("variables and secrets of Batch AI's form may be numbers and truth values, as they are written") {
  const std::string begin =
      R"({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l", "customToolkitSettings": {"commandLine": "x"},
"secrets": [{"name": "PIN", "value": 12345}], "environmentVariables": [{"name": "A", "value": 2},
{"name": "B", "value": 0.50}, {"name": "C", "value": true}, {"name": "D", "value": )";
  const JobFile job = job_of(begin + "\"text\"}]}}", "job.json");
  std::string values;
  for (const JobVariable& variable : job.variables) {
    values += variable.name + "=" + *variable.value + " ";
  }
  CHECK(values == "A=2 B=0.50 C=true D=text ");
  CHECK(job.hidden == std::vector<std::string>{"12345"});
  CHECK(refusal_of(begin + "[1]}]}}", "job.json") == "job.json:3:84: value: expected text, found a list");
}

TEST_CASE("a registry's password that is elsewhere is told: one logs in on the nodes") {
  const auto told = [](const std::string& credentials, const std::string& server = "") {
    const auto loaded = parse_job_file(
        R"({"properties": {"nodeCount": 1, "stdOutErrPathPrefix": "/l", "customToolkitSettings": {"commandLine": "x"},
"containerSettings": {"imageSourceRegistry": {"image": "i", "credentials": {"username": "u")" +
            credentials + "}" + server + "}}}}",
        "job.json", {});
    REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
    return loaded.value().notices;
  };
  const std::string reference =
      R"(, "passwordSecretReference": {"sourceVault": {"id": "/v"}, "secretUrl": "https://v/s"})";
  CHECK(told(R"(, "password": "pass-word")").empty());
  CHECK(told(reference, R"(, "serverUrl": "acr.io")") ==
        Notices{"job.json:2:76: the registry's password is not in the file; log in on the nodes (podman login acr.io), "
                "or write 'password'"});
  CHECK(told("").front().find("(podman login docker.io)") != std::string::npos);
}

TEST_CASE("a comment may name placeholders, mounts and variables, and nothing is made of them") {
  for (const std::string key : {"comment", "$comment"}) {
    const std::string comment = "\"" + key + R"(": [{"a": "<AZURE_BATCHAI_STORAGE_ACCOUNT>"},
"as $AZ_BATCHAI_MOUNT_ROOT/external or $AZ_BATCHAI_INPUT_X"], )";
    const auto loaded = parse_job_file(
        "{" + comment + "\"properties\": {" + comment +
            R"("nodeCount": 1, "stdOutErrPathPrefix": "/l", "customToolkitSettings": {)" + comment +
            R"("commandLine": "x"}, "inputDirectories": [{)" + comment + R"("id": "A", "path": "/a"}]}})",
        "job.json", {});
    REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
    CHECK(loaded.value().job.mounts.empty());
    CHECK(loaded.value().job.inputs.size() == 1);
    CHECK(loaded.value().notices.size() == (key == "comment" ? 4U : 0U));  // that the key means nothing
  }
  CHECK(refusal_of("$comment: <AZURE_BATCHAI_STORAGE_ACCOUNT>\ncommand: x\n").empty());
}

TEST_CASE("both forms have one rule for what a job is given twice, and for a path that is written to") {
  const std::string file = "f";
  const JobFileOptions options{"", {"FROM_ME=here"}};
  Notices notices;
  const FormReader reader(file, options, notices);
  JobFile job;
  const auto mount = [&](const std::string& name, bool is_of_cluster) {
    Mount mount_there;
    mount_there.name = name;
    mount_there.is_of_cluster = is_of_cluster;
    return reader.add_mount(std::move(mount_there), job).ok();
  };
  CHECK(mount("data/raw", false));
  CHECK_FALSE(mount("data", false));  // the other one is inside of it
  CHECK_FALSE(mount("data/raw/new", false));
  CHECK(mount("data/rawer", false));
  CHECK(mount("data", true));  // below another root
  CHECK(job.mounts.size() == 3);

  CHECK(reader.add_variable({"A", "1", {}}, false, job).ok());
  CHECK_FALSE(reader.add_variable({"A", "1", {}}, true, job).ok());
  CHECK(reader.add_variable({"FROM_ME", {}, {}}, true, job).ok());
  CHECK(job.secrets[0].value == "here");
  CHECK(job.hidden == std::vector<std::string>{"here"});
  CHECK(reader.add_variable({"FROM_NOBODY", {}, {}}, true, job).error().message().starts_with("f:0:0: the value of"));

  DocValue path;
  for (const char* good : {"/", "/logs//", "a//b", "./logs", "/./a", "$DIR/logs"}) {
    path.text = good;
    CHECK(reader.written_path(path, "output").ok());
  }
  CHECK(reader.written_path(path, "output").value() == "$DIR/logs");
  for (const char* bad : {"", "..", "./..", "a/../b", "/a/..//", "a\nb", "~", "~/logs", "~me/logs"}) {
    path.text = bad;
    CHECK_FALSE(reader.written_path(path, "output").ok());
  }
}

TEST_CASE("durations are read in all the forms that files have") {
  const auto seconds = [](const std::string& text) {
    const auto duration = parse_job_duration(text);
    return duration ? std::chrono::duration<double>(*duration).count() : -1;
  };
  CHECK(seconds("90") == 90);
  CHECK(seconds("1.5") == 1.5);
  CHECK(seconds("90m") == 5400);
  CHECK(seconds("1h30m") == 5400);
  CHECK(seconds("1:30:00") == 5400);
  CHECK(seconds("7.00:00:00") == 604800);
  CHECK(seconds("7 days, 0:00:10") == 604810);
  CHECK(seconds("1 day, 0:00:00") == 86400);
  CHECK(seconds("P7D") == 604800);
  CHECK(seconds("PT1H30M") == 5400);
  CHECK(seconds("P1DT12H") == 129600);
  for (const char* bad :
       {"", "x", "-1", "0", "1:2", "1:99:00", "P", "PT", "P1M", "7d x", "1e9999", "nan", "1:00:00x"}) {
    CHECK_MESSAGE(seconds(bad) == -1, bad);
  }
}

TEST_CASE("a command is shell text, or the words of a program and its arguments") {
  CHECK(job_of("command: python -c 'print(1)'\n").tool.command_line == "python -c 'print(1)'");
  CHECK(job_of("command: [python, train.py, --lr, 0.1]\n").tool.command_line == "python train.py --lr 0.1");
  CHECK(job_of("command: [sh, -c, 'a \"b\"; c', $DIR/x]\n").tool.command_line ==
        "sh -c 'a ''\"'b'\"''; c' \"${DIR-}\"/x");
}

TEST_CASE("words of a file have any case, and are kept in one") {
  const JobFile job = job_of("command: x\ngpus: One\npriority: High\n");
  CHECK(job.gpus == "one");
  CHECK(job.priority == "high");
}

TEST_CASE("a job names what the command line mounts, or the folder where the service had the cluster's mounts") {
  JobFileOptions options;
  options.mounts = {"afs", "unused"};
  const std::string text =
      "toolType: custom\nproperties:\n  toolType: custom\n  executionInfo: {exitCode: 0}\n  nodeCount: 1\n"
      "  cluster: {id: /c, resourceGroup: g}\n"
      "  stdOutErrPathPrefix: /mnt/batch/tasks/shared/LS_root/mounts/bfs/out\n"
      "  customToolkitSettings: {commandLine: ls $AZ_BATCHAI_JOB_MOUNT_ROOT/afs/x $AZ_BATCHAI_JOB_MOUNT_ROOT/none}\n";
  const auto loaded = parse_job_file(text, "job.yaml", options);
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
  const std::vector<Mount>& mounts = loaded.value().job.mounts;
  REQUIRE(mounts.size() == 2);
  CHECK(mounts[0].name == "bfs");
  CHECK(mounts[0].is_of_cluster);
  CHECK(mounts[1].name == "afs");
  CHECK_FALSE(mounts[1].is_of_cluster);
  CHECK(loaded.value().job.output_prefix == "$AZ_BATCHAI_MOUNT_ROOT/bfs/out");
  REQUIRE(loaded.value().notices.size() == 3);  // the first: its cluster has no effect
  CHECK(loaded.value().notices[1].find("the key 'toolType' means nothing in a Batch AI job file") != std::string::npos);
  CHECK(loaded.value().notices[2].find("nothing is mounted at $AZ_BATCHAI_JOB_MOUNT_ROOT/none") != std::string::npos);
}

TEST_CASE("a mount whose name has several parts is found where the file names it, or a folder above it") {
  JobFileOptions options;
  options.mounts = {"nfs/data", "nfs/models", "mine/sets", "mine/other"};
  const std::string text =
      "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: $AZ_BATCHAI_MOUNT_ROOT/old/out\n"
      "  customToolkitSettings: {commandLine: ls $AZ_BATCHAI_MOUNT_ROOT/nfs $AZ_BATCHAI_JOB_MOUNT_ROOT/mine/sets/x}\n";
  const auto loaded = parse_job_file(text, "job.yaml", options);
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
  CHECK(loaded.value().notices.empty());
  std::vector<std::string> names;
  for (const Mount& mount : loaded.value().job.mounts) {
    names.push_back((mount.is_of_cluster ? "cluster " : "job ") + mount.name);
  }
  CHECK(names == std::vector<std::string>{"cluster old", "cluster nfs/data", "cluster nfs/models", "job mine/sets"});
}

TEST_CASE("a name that is given mounts nothing around what the file mounts itself") {
  JobFileOptions options;
  options.mounts = {"data"};
  const std::string text =
      "properties:\n  nodeCount: 1\n  stdOutErrPathPrefix: $AZ_BATCHAI_JOB_MOUNT_ROOT/data/raw\n"
      "  customToolkitSettings: {commandLine: x}\n"
      "  mountVolumes: {unmanagedFileSystems: [{mountCommand: m, relativeMountPath: data/raw}]}\n";
  const auto loaded = parse_job_file(text, "job.yaml", options);
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
  REQUIRE(loaded.value().job.mounts.size() == 1);
  CHECK(loaded.value().job.mounts.front().name == "data/raw");
}

TEST_CASE("what is missed is told with the key that was perhaps meant to be it; an empty file is empty in each form") {
  CHECK(refusal_of("nodeCount: 2\nscrpt: a.py\n") ==
        "job.yaml:1:1: neither 'script' nor 'command' is given, which say what to start\n"
        "  job.yaml:2:1: the key 'scrpt' means nothing in a job file; did you mean 'script'?");
  CHECK(refusal_of(R"({"properties": {"nodeCoutn": 2}})", "job.json") ==
        "job.json:1:16: properties: the key 'nodeCount' is missing (the nodes that the job needs)\n"
        "  job.json:1:17: the key 'nodeCoutn' means nothing in properties; did you mean 'nodeCount'?");
  CHECK(refusal_of("", "job.json") == "job.json:1:1: the file is empty; expected keys with their values");
  CHECK(refusal_of("\n", "job.yaml") == "job.yaml:1:1: the file is empty; expected keys with their values");
}

}  // namespace hvd::launch::jobfile_test

#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/jobfile/container_command.h"
#include "launcher/jobfile/document.h"
#include "launcher/jobfile/form_reader.h"
#include "launcher/jobfile/job_run.h"
#include "launcher/jobfile/variable_text.h"

namespace hvd::launch::jobfile_test {
namespace {

using Kind = DocValue::Kind;

std::string error_of(const hvd::Result<DocValue>& document) {
  return document.ok() ? "" : document.error().message();
}

JobFile job_of(const std::string& text, const std::string& file = "job.yaml") {
  auto loaded = parse_job_file(text, file, {"account", {"FROM_ME=here"}});
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
  return std::move(loaded).value().job;
}

std::string refusal_of(const std::string& text, const std::string& file = "job.yaml") {
  const auto loaded = parse_job_file(text, file, {});
  return loaded.ok() ? "" : loaded.error().message();
}

JobRun run_of(const std::string& text, const std::string& hosts, JobRunOptions options = {}) {
  JobFile job = job_of(text);
  auto layout = lay_out(job, parse_host_list(hosts).value(), 0);
  REQUIRE_MESSAGE(layout.ok(), layout.error().message());
  options.id = "1d";
  options.uuid = "uuid";
  auto run = make_job_run(std::move(job), std::move(layout).value(), std::move(options));
  REQUIRE_MESSAGE(run.ok(), run.error().message());
  return std::move(run).value();
}

std::string value_in(const Settings& env, const std::string& name) {
  const auto found = std::find_if(env.rbegin(), env.rend(), [&](const auto& pair) { return pair.first == name; });
  return found == env.rend() ? "(none)" : found->second;
}

// All that is run, in whatever shell.
std::string set_up_of(const JobRun& run, const std::vector<JobNodeFacts>& facts) {
  JobTexts texts("/agent");
  texts.add(set_up_script(run, facts, 0, texts).value());
  return texts.joined();
}

std::string process_of(const JobRun& run) {
  JobTexts texts("/agent");
  texts.add(process_script(run, 0, texts).value());
  return texts.joined();
}

}  // namespace

TEST_CASE("every value of a JSON document knows where it stands") {
  const auto document =
      parse_json_document("\xef\xbb\xbf{\r\n  \"a\": [1, -2,\n 3.5e1, true],\n\t\"b\": {\"c\": null}}", "f");
  REQUIRE(document.ok());
  const DocValue& root = document.value();
  CHECK(root.at == Position{1, 4});  // behind the byte order mark
  CHECK(root.key_at[0] == Position{2, 3});
  const DocValue& list = root.items[0];
  CHECK(list.at == Position{2, 8});
  CHECK(list.items[1].at == Position{2, 12});
  CHECK(list.items[1].text == "-2");
  CHECK(list.items[2].at == Position{3, 2});
  CHECK(list.items[2].kind == Kind::kReal);
  CHECK(list.items[3].at == Position{3, 9});
  CHECK(root.items[1].key_at[0] == Position{4, 8});
  CHECK(root.items[1].find("c") == nullptr);  // null is as not there
}

TEST_CASE("JSON is read to the letter, and refused with line and column") {
  const auto refused = [](const std::string& text) { return error_of(parse_json_document(text, "f")); };
  CHECK(refused("{\"a\": 1,\n}") == "f:2:1: a comma before '}'; JSON has none after the last entry");
  CHECK(refused("[1,\n 2 , ]") == "f:2:6: a comma before ']'; JSON has none after the last entry");
  CHECK(refused("{\"a\": 1, \"a\": 2}") == "f:1:10: the key 'a' is given twice (first in line 1)");
  CHECK(refused("{\"a\": 1 // no\n}") == "f:1:9: JSON has no comments");
  CHECK(refused("{\"a\": 1") == "f:1:8: the file ends in the middle of a value; is a bracket or quote missing?");
  CHECK(refused("{\"a\": \"\\ud83d\"}").starts_with("f:1:14: not JSON: "));
  CHECK(refused("{\"a\": 01}").starts_with("f:1:8: not JSON: "));
  CHECK(refused("{'a': 1}").starts_with("f:1:2: not JSON: "));
  CHECK(refused("").starts_with("f:1:1: "));
  CHECK(refused("{} x").starts_with("f:1:4: not JSON: "));
  CHECK(refused(std::string(100, '[')).find("nested more than 64 deep") != std::string::npos);
  CHECK(error_of(parse_document(std::string("\xff\xfe{\0}\0", 6), "f.json")) ==
        "f.json:1:1: the text is UTF-16, as PowerShell's > writes it; save it as UTF-8");
  CHECK(error_of(parse_document(std::string(kMostJobFileBytes + 1, ' '), "f.json"))
            .starts_with("f.json: more than 1048576 bytes"));
  CHECK(parse_json_document("\"\\ud83d\\ude00\"", "f").value().text == "\xf0\x9f\x98\x80");
}

TEST_CASE("YAML scalars are what the core schema makes of them, and quotes make text") {
  const auto document = parse_yaml_document(
      "a: 1\nb: '1'\nc: yes\nd: true\ne: 1.5\nf: ~\ng: 0777\nh: 1:30:00\ni: |\n  two\n  lines\nj: [x, 0x10]\nk: -3\n",
      "f");
  REQUIRE(document.ok());
  const DocValue& root = document.value();
  const auto kind = [&root](std::size_t i) { return root.items[i].kind; };
  CHECK(kind(0) == Kind::kInteger);
  CHECK(kind(1) == Kind::kText);
  CHECK(kind(2) == Kind::kText);
  CHECK(kind(3) == Kind::kBool);
  CHECK(kind(4) == Kind::kReal);
  CHECK(kind(5) == Kind::kNull);
  CHECK(kind(6) == Kind::kInteger);
  CHECK(root.items[6].text == "0777");
  CHECK(kind(7) == Kind::kText);
  CHECK(root.items[8].text == "two\nlines\n");
  CHECK(root.items[9].items[1].kind == Kind::kText);
  CHECK(kind(10) == Kind::kInteger);
  CHECK(root.items[9].at == Position{12, 4});
}

TEST_CASE("YAML is refused with line and column, and cannot be made to grow") {
  const auto refused = [](const std::string& text) { return error_of(parse_yaml_document(text, "f")); };
  CHECK(refused("a: 1\na: 2\n") == "f:2:1: the key 'a' is given twice");
  CHECK(refused("a: [1\n").starts_with("f:"));
  CHECK(refused("a: 1\n---\nb: 2\n").find("a second document") != std::string::npos);
  CHECK(refused("") == "f:1:1: the file is empty; expected keys with their values");
  CHECK(refused("? [a]\n: 1\n").find("expected a name as key") != std::string::npos);
  CHECK(refused("a:\n\tb: 1\n") == "f:2:3: the line begins with a tab; YAML is indented with spaces");
  CHECK(refused("a: echo b: c\n").find("put a text with ': ' in quotes") != std::string::npos);
  CHECK(refused("a: 1\n b: 2\n").find("indent the keys of one map alike") != std::string::npos);
  CHECK(refused("a: [b\n") == "f:2:1: not YAML: a '[' or '{', or a quote, has no end");
  CHECK(refused("a: !include b.yaml\n") == "f:1:4: the tag '!include' means nothing here; write the value itself");
  CHECK(refused("a: !!python/name:os.system [b]\n").find("the tag '!!python/name:os.system'") != std::string::npos);
  CHECK(refused("a: !!str 5\nb: !!map {c: !!seq [d]}\ne: ! f\n").empty());
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) {
      bomb += last + (j < 9 ? ", " : "]\n");
    }
  }
  CHECK(refused(bomb).find("more than 20000 values") != std::string::npos);
}

TEST_CASE("a wrong type, a missing key and a misspelt one each name their place") {
  CHECK(refusal_of("command: [1]\n") == "job.yaml:1:10: command: expected text, found a list");
  CHECK(refusal_of("command: 5\n") == "job.yaml:1:10: command: expected text; write it in quotes, found 5");
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

TEST_CASE("texts become shell words that mean exactly them, but for variables") {
  CHECK(quote_with_variables("$A/b c${D}") == "\"${A-}\"'/b c'\"${D-}\"");
  CHECK(quote_with_variables("$(touch x) $1 ${A:-b} $") == "'$(touch x) $1 ${A:-b} $'");
  std::vector<std::string> missing;
  const auto value_of = [](const std::string& name) {
    return name == "A" ? std::optional<std::string>("1") : std::nullopt;
  };
  CHECK(expand_variables("$A-${B}-$A", value_of, missing) == "1--1");
  CHECK(missing == std::vector<std::string>{"B"});
}

TEST_CASE("arguments are split and quoted as a shell does, and nothing in them is executed") {
  const auto words = [](const std::string& text) { return read_arguments(text).value().shell_text; };
  CHECK(words("--a 1  --b=$X 'c d' \"e $Y\"") == "--a 1 '--b='${X-} 'c d' 'e '\"${Y-}\"");
  CHECK(words("*.csv; rm -rf $(x)") == "*'.csv;' rm -rf '$(x)'");
  CHECK(words("$A/d*/'x*'?[1] \"*\"") == "${A-}/d*/'x*'?'[1]' '*'");
  CHECK_FALSE(read_arguments("a;b").value().is_plain);
  CHECK(read_arguments("'a;b'").value().is_plain);
  CHECK(read_arguments("a/*/b").value().has_pattern);
  CHECK_FALSE(read_arguments("'*' \"?\" [ab] \\*").value().has_pattern);
  CHECK_FALSE(read_arguments("it's").ok());
  CHECK(words("''") == "''");
  CHECK(words("--a 1 \\\n --b 2\\\r\n3") == "--a 1 --b 23");  // a line that goes on in the next one
  CHECK(words("\"a\\\nb\" 'c\\\nd'") == "ab 'c\\\nd'");
  for (const std::string text : {"a b", "$(x)", "\"\\", "it's", "`x`", "a\nb", "\\\\"}) {
    const auto back = read_arguments(argument_of(text));
    REQUIRE(back.ok());
    CHECK(back.value().shell_text.find("$(x)\"") == std::string::npos);
  }
}

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

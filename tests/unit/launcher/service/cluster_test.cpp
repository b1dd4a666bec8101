#include "launcher/service/cluster.h"

#include <string>

#include <doctest/doctest.h>

namespace hvd::launch::cluster_test {

TEST_CASE("a cluster's file is read, and what is written of it is read back") {
  const auto loaded = parse_cluster(
      "hosts: ['node[1-2]:4', 'me@[fe80::1]:2222:2@0,3']\nsize: NC6\nmounts: {data: /data/, a/b: /x}\nmountRoot: /m\n"
      "env: {A: 1, B: 'x y'}\ndefaults: {container: None, rsh: 'ssh {host}', sshPort: 22, grace: 0.5, startTimeout: "
      "7}\n",
      "c.yaml", "lab");
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message());
  const Cluster& cluster = loaded.value().cluster;
  CHECK(loaded.value().notices.empty());
  REQUIRE(cluster.hosts.size() == 3);
  CHECK(host_entry(cluster.hosts[0]) == "node1:4");
  CHECK(host_entry(cluster.hosts[2]) == "me@[fe80::1]:2222:2@0,3");
  CHECK(cluster.mounts == decltype(cluster.mounts){{"data", "/data"}, {"a/b", "/x"}});
  CHECK(cluster.env == decltype(cluster.env){{"A", "1"}, {"B", "x y"}});
  CHECK(cluster.defaults.grace_s == 0.5);
  CHECK(cluster.defaults.container == "none");
  CHECK(parse_cluster(cluster_text(cluster), "c.json", "lab").value().cluster == cluster);
}

TEST_CASE(
    "the file systems of a cluster's file are read, and what is written of them is read back without a password") {
  const auto loaded = parse_cluster(
      "hosts: a\n"
      "fileSystems:\n"
      "  - {name: nfs, type: NFS, source: 's:/e', options: 'vers=4.1'}\n"
      "  - {name: a/b, type: cifs, source: //s/x, account: me, passwordVariable: KEY, localDirectory: /srv/x/}\n",
      "c.yaml", "lab");
  REQUIRE(loaded.ok());
  Cluster cluster = loaded.value().cluster;
  REQUIRE(cluster.file_systems.size() == 2);
  CHECK(cluster.file_systems[0].type == "nfs");
  CHECK(!cluster.file_systems[0].needs_password());
  CHECK(cluster.file_systems[1].needs_password());
  CHECK(cluster.file_systems[1].here == "/srv/x");
  CHECK(parse_cluster(cluster_text(cluster), "c.json", "lab").value().cluster == cluster);
  cluster.file_systems[1].password = "secret";
  CHECK(cluster_text(cluster).find("secret") == std::string::npos);
  CHECK(!parse_cluster("hosts: a\nmounts: {x: /x}\nfileSystems: [{name: x, type: bind, source: /y}]", "c", "lab").ok());
  CHECK(
      !parse_cluster("hosts: a\nfileSystems: [{name: x, type: bind, source: /y}, {name: x/z, type: bind, source: /y}]",
                     "c", "lab")
           .ok());
}

TEST_CASE("a key that a cluster's file does not have is told with the one that was meant, or with where all are") {
  const auto told = [](const std::string& text) { return parse_cluster(text, "c.yaml", "lab").value().notices; };
  CHECK(
      told("hosts: a\nssh: {port: 22}\n") ==
      Notices{"c.yaml:2:1: the key 'ssh' means nothing in a cluster's file; hvdrun help clusters shows those that do"});
  CHECK(told("hosts: a\nmounst: {x: /x}\n") ==
        Notices{"c.yaml:2:1: the key 'mounst' means nothing in a cluster's file; did you mean 'mounts'?"});
}

TEST_CASE("Batch AI's own file of a cluster is named as one") {
  const auto loaded =
      parse_cluster(R"({"properties": {"vmSize": "STANDARD_NC6", "scaleSettings": {}}})", "c.json", "lab");
  REQUIRE_FALSE(loaded.ok());
  CHECK(loaded.error().message().find("c.json:1:16: this is Batch AI's file of a cluster") == 0);
  CHECK(loaded.error().message().find("hvdrun cluster add lab -H node1:4,node2:4") != std::string::npos);
}

TEST_CASE("what is wrong with a cluster's file is told with its place") {
  const auto refusal = [](const std::string& text, const std::string& name = "lab") {
    const auto loaded = parse_cluster(text, "c.yaml", name);
    return loaded.ok() ? "" : loaded.error().message();
  };
  CHECK(refusal("size: x\n").find("'hosts'") != std::string::npos);
  CHECK(refusal("hosts: [a, b, a]\n") ==
        "c.yaml:1:15: the host a is named twice; give it all of its slots in one entry");
  CHECK(refusal("hosts: a\nmounts: {d\xff\xff: /d}\n") ==
        "c.yaml:2:10: these bytes are no text in UTF-8, as which the cluster is kept");
  for (const char* bytes :
       {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe6\x97", "\x80", "\xf8\x88\x80\x80\x80"}) {
    CHECK(!parse_cluster("hosts: a\nsize: " + std::string(bytes) + "\n", "c.yaml", "lab").ok());
  }
  CHECK(parse_cluster("hosts: a\nsize: \xe6\x97\xa5\xf0\x9f\x98\x80\n", "c.yaml", "lab").ok());
  CHECK(refusal("hosts: []\n") == "c.yaml:1:8: a cluster needs a host");
  CHECK(refusal("hosts: [-x]\n").starts_with("c.yaml:1:9: host list, column 1: "));
  CHECK(refusal("hosts: [a]\nmounts: {../x: /data}\n").starts_with("c.yaml:2:10: '../x' cannot be where"));
  CHECK(refusal("hosts: [a]\nmounts: {x: data}\n").starts_with("c.yaml:2:13: mounts: expected the absolute path"));
  CHECK(refusal("hosts: [a]\nmountRoot: \"/a\\nb\"\n").starts_with("c.yaml:2:12: mountRoot: "));
  CHECK(refusal("hosts: [a]\nenv: {A B: 1}\n").starts_with("c.yaml:2:7: 'A B' cannot be the name of a variable"));
  CHECK(refusal("hosts: [a]\ndefaults: {grace: -1}\n").starts_with("c.yaml:2:19: grace: expected seconds"));
  CHECK(refusal("hosts: [a]\ndefaults: {container: rkt}\n").find("c.yaml:2:23: ") == 0);
  CHECK(refusal("[a]\n").starts_with("c.yaml:1:1: "));
  for (const char* name : {"", "../x", "-rf", "a b", "a/b", "x\n", "$(touch x)"}) {
    CHECK(refusal("hosts: [a]\n", name).find("cannot be the name of a cluster") != std::string::npos);
  }
}

}  // namespace hvd::launch::cluster_test

// The parts of the ssh transport that decide without a network: ssh -G, known_hosts, host-key policy, key files.
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launcher/command/rsh_template.h"
#include "launcher/command/system_ssh.h"
#include "launcher/ssh/base64.h"
#include "launcher/ssh/host_key_policy.h"
#include "launcher/ssh/key_file.h"
#include "launcher/ssh/known_hosts.h"
#include "launcher/transport/ssh_config.h"
#include "tests/unit/launcher/transport/sshd_fixture.h"

namespace hvd::launch::ssh_pure_test {
namespace {

const LocalUser kAda{"ada", "/home/ada", {"KEYS=/from the environment", "SSH_AUTH_SOCK=/run/agent"}};

std::string wire(const std::string& text) {
  std::string out = {0, 0, 0, static_cast<char>(text.size())};
  return out + text;
}
HostKey make_key(const std::string& type, const std::string& body) {
  return {type, wire(type) + wire(body)};
}
std::string line_of(const std::string& hosts, const HostKey& key) {
  return hosts + " " + key.type + " " + base64_encode(key.blob) + "\n";
}

SshHostConfig parse(const std::string& text) {
  auto config = parse_ssh_config("hostname h\nuser u\n" + text, {"node1", "", 0, "", ""}, kAda);
  REQUIRE(config.ok());
  return config.value();
}

TEST_CASE("the output of ssh -G becomes one value") {
  const SshHostConfig config = parse(
      "port 2222\nidentityfile ~/.ssh/id_a\nidentityfile /keys/%r@%h:%p\nidentityfile none\nidentitiesonly yes\n"
      "userknownhostsfile /home/ada/.ssh/known_hosts /x\nglobalknownhostsfile /etc/a /etc/b\n"
      "stricthostkeychecking accept-new\nhostkeyalias cluster\nidentityagent ~/agent.sock\nconnecttimeout 7\n"
      "addressfamily inet6\nhashknownhosts yes\nsendenv LANG\ncompression no\n");
  CHECK(config.hostname == "h");
  CHECK(config.user == "u");
  CHECK(config.port == 2222);
  CHECK(config.identity_files == std::vector<std::string>{"/home/ada/.ssh/id_a", "/keys/u@h:2222"});
  CHECK(config.identities_only);
  CHECK(config.identity_agent == "/home/ada/agent.sock");
  CHECK(config.user_known_hosts == std::vector<std::string>{"/home/ada/.ssh/known_hosts", "/x"});
  CHECK(config.global_known_hosts == std::vector<std::string>{"/etc/a", "/etc/b"});
  CHECK(config.host_key_policy == HostKeyPolicy::kAcceptNew);
  CHECK(config.host_key_alias == "cluster");
  CHECK(config.connect_timeout == std::chrono::seconds(7));
  CHECK(config.address_family == AF_INET6);
  CHECK(config.hash_known_hosts);
  CHECK(config.needs_ssh.empty());
  CHECK(config.connection_attempts == 1);
  CHECK(!config.trusts_loopback);
  CHECK(parse("connectionattempts 300\n").connection_attempts == 300);
  CHECK(parse("nohostauthenticationforlocalhost yes\n").trusts_loopback);
}

TEST_CASE("files of keys and certificates are found as ssh finds them, or left to ssh") {
  const SshHostConfig config =
      parse("identityfile ${KEYS}/id\nidentityfile ~/%%d\ncertificatefile ~/.ssh/%r-cert.pub\n");
  CHECK(config.identity_files == std::vector<std::string>{"/from the environment/id", "/home/ada/%d"});
  CHECK(config.certificate_files == std::vector<std::string>{"/home/ada/.ssh/u-cert.pub"});
  CHECK(config.needs_ssh.empty());
  CHECK(config.identity_agent == "/run/agent");
  CHECK(parse("identityagent none\n").identity_agent == "none");
  CHECK(parse("identityagent $KEYS\n").identity_agent == "/from the environment");
  CHECK(parse("identityagent $NO_KEYS\n").identity_agent.empty());
  CHECK(parse("identityagent ${KEYS}/agent\n").identity_agent == "/from the environment/agent");
  for (const char* path : {"/keys/%C", "~grace/id", "${NO_KEYS}/id", "${KEYS"}) {
    CHECK(parse(std::string("identityfile ") + path + "\n").needs_ssh == std::string("IdentityFile ") + path);
    CHECK(parse(std::string("certificatefile ") + path + "\n").needs_ssh == std::string("CertificateFile ") + path);
  }
}

TEST_CASE("the algorithms that the user allows are taken as they stand") {
  const SshHostConfig config = parse(
      "kexalgorithms a,b\nhostkeyalgorithms ssh-ed25519\nciphers c\nmacs d,e\nrequiredrsasize 2048\n"
      "hostbasedacceptedalgorithms x\ncasignaturealgorithms y\n");
  CHECK(config.algorithms.key_exchange == "a,b");
  CHECK(config.algorithms.host_keys == "ssh-ed25519");
  CHECK(config.algorithms.ciphers == "c");
  CHECK(config.algorithms.macs == "d,e");
  CHECK(config.required_rsa_bits == 2048);
  CHECK(config.needs_ssh.empty());
  CHECK(!parse_ssh_config("hostname h\nuser u\nrequiredrsasize many\n", {"node1", "", 0, "", ""}, kAda).ok());
}

TEST_CASE("the policy words of ssh -G, old and new, have their meaning") {
  for (const char* word : {"yes", "true", "ask", "something new"}) {
    CHECK(parse(std::string("stricthostkeychecking ") + word + "\n").host_key_policy == HostKeyPolicy::kStrict);
  }
  for (const char* word : {"no", "off", "false"}) {
    CHECK(parse(std::string("stricthostkeychecking ") + word + "\n").host_key_policy == HostKeyPolicy::kOff);
  }
}

TEST_CASE("what only the user's ssh can do is told in the user's words, none is none") {
  CHECK(parse("proxyjump bastion\n").needs_ssh == "ProxyJump bastion");
  CHECK(parse("proxycommand nc %h %p\n").needs_ssh == "ProxyCommand nc %h %p");
  CHECK(parse("knownhostscommand /bin/keys %H\n").needs_ssh == "KnownHostsCommand /bin/keys %H");
  CHECK(parse("bindaddress 10.0.0.1\n").needs_ssh == "BindAddress 10.0.0.1");
  CHECK(parse("revokedhostkeys /etc/ssh/revoked\n").needs_ssh == "RevokedHostKeys /etc/ssh/revoked");
  CHECK(parse("verifyhostkeydns true\n").needs_ssh == "VerifyHostKeyDNS true");
  CHECK(parse("pubkeyauthentication false\n").needs_ssh == "PubkeyAuthentication false");
  CHECK(parse("proxycommand none\nproxyjump none\nknownhostscommand none\nrevokedhostkeys none\n").needs_ssh.empty());
  for (const char* usual : {"verifyhostkeydns false\n", "verifyhostkeydns ask\n", "pubkeyauthentication true\n",
                            "pubkeyauthentication unbound\n"}) {
    CHECK(parse(usual).needs_ssh.empty());
  }
  CHECK(parse("controlpath /run/m.sock\n").control_path == "/run/m.sock");
  CHECK(parse("controlpath none\n").control_path.empty());
  CHECK(parse("certificatefile /c\n").certificate_files == std::vector<std::string>{"/c"});
  CHECK(parse("gssapiauthentication yes\n").tries_gssapi);
  CHECK(!parse("gssapiauthentication no\nhostbasedauthentication no\n").tries_hostbased);
}

TEST_CASE("the system's ssh is asked without prompts and forwardings, for the same host in the same way") {
  const RshCommand command = system_ssh_command({"node1", "bob", 2222, "/k", "/f"}, std::chrono::milliseconds(1500));
  CHECK(shown_words(command.argv) ==
        "ssh -T -x -a -o BatchMode=yes -o ClearAllForwardings=yes -o PermitLocalCommand=no -o ControlMaster=no "
        "-o ConnectTimeout=2 -F /f -p 2222 -l bob -i /k -- node1");
  CHECK(command.host == "node1");
  const RshCommand plain = system_ssh_command({"node1", "", 0, "", ""}, Duration::zero());
  CHECK(plain.argv.back() == "node1");
  CHECK(shown_words(plain.argv).find("ConnectTimeout") == std::string::npos);
  CHECK(shown_words(plain.argv).find("RemoteCommand") == std::string::npos);
  const RshCommand ours = system_ssh_command({"node1", "", 0, "", ""}, Duration::zero(), true);
  CHECK(shown_words(ours.argv).ends_with(" -o RemoteCommand=none -- node1"));
  CHECK(parse("remotecommand tmux attach\n").has_remote_command);
  CHECK(!parse("remotecommand none\n").has_remote_command);
  CHECK(!parse("").has_remote_command);
}

TEST_CASE("what is not the output of ssh -G is an error, not a guess") {
  const SshRequest request{"node1", "", 0, "", ""};
  CHECK(!parse_ssh_config("", request, kAda).ok());
  CHECK(!parse_ssh_config("hostname h\nuser u\nport many\n", request, kAda).ok());
  CHECK(!parse_ssh_config("hostname h\nuser u\nport 70000\n", request, kAda).ok());
  CHECK(!parse_ssh_config("hostname h\nuser u\nconnecttimeout x\n", request, kAda).ok());
}

TEST_CASE("what the user asked for goes to ssh -G, and a host cannot be an option") {
  CHECK(ssh_config_argv({"n", "ada", 22, "/k", "/c"}) ==
        std::vector<std::string>{"ssh", "-G", "-F", "/c", "-p", "22", "-l", "ada", "-i", "/k", "--", "n"});
  CHECK(ssh_config_argv({"n", "", 0, "", ""}) == std::vector<std::string>{"ssh", "-G", "--", "n"});
  CHECK(check_ssh_request({"node1", "ada", 0, "", ""}).ok());
  CHECK(!check_ssh_request({"-oProxyCommand=x", "", 0, "", ""}).ok());
  CHECK(!check_ssh_request({"a b", "", 0, "", ""}).ok());
  CHECK(!check_ssh_request({"", "", 0, "", ""}).ok());
  CHECK(!check_ssh_request({"node1", "-x", 0, "", ""}).ok());
}

TEST_CASE("without the ssh program the defaults are those of ssh") {
  const SshHostConfig config = default_ssh_config({"n", "", 2200, "/k", ""}, kAda);
  CHECK(config.hostname == "n");
  CHECK(config.user == "ada");
  CHECK(config.port == 2200);
  CHECK(config.identity_files.front() == "/k");
  CHECK(config.identity_files.size() == 4);
  CHECK(config.host_key_policy == HostKeyPolicy::kStrict);
  CHECK(config.user_known_hosts.front() == "/home/ada/.ssh/known_hosts");
}

TEST_CASE("known_hosts entries are found by name, list, pattern, port and hash") {
  const HostKey key = make_key("ssh-ed25519", "one");
  const auto matches = [&key](const std::string& hosts, const std::string& name) {
    return find_known_hosts(line_of(hosts, key), "f", name).size() == 1;
  };
  CHECK(matches("node1", "node1"));
  CHECK(matches("Node1,10.0.0.1", "node1"));
  CHECK(matches("a,b,10.0.0.1", "10.0.0.1"));
  CHECK(!matches("node10", "node1"));
  CHECK(matches("node*,!node9", "node1"));
  CHECK(!matches("node*,!node9", "node9"));
  CHECK(matches("n?de1", "node1"));
  CHECK(matches("[node1]:2222", "[node1]:2222"));
  CHECK(!matches("node1", "[node1]:2222"));
  const std::string hashed = known_hosts_line("[node1]:2222", key, "12345678901234567890");
  CHECK(hashed.starts_with("|1|"));
  CHECK(find_known_hosts(hashed, "f", "[node1]:2222").size() == 1);
  CHECK(find_known_hosts(hashed, "f", "node1").empty());
}

TEST_CASE("a hash that OpenSSH wrote is understood") {
  const test::TempDir dir;
  const HostKey key = make_key("ssh-ed25519", std::string(32, 'k'));
  test::write_file(dir.path("kh"), line_of("node1.example", key));
  if (test::run_program({"ssh-keygen", "-H", "-f", dir.path("kh")}).status != 0) {
    MESSAGE("SKIPPED no ssh-keygen");
    return;
  }
  const std::string text = test::read_file(dir.path("kh"));
  CHECK(text.starts_with("|1|"));
  CHECK(find_known_hosts(text, "kh", "node1.example").size() == 1);
  const test::Ran shown = test::run_program({"ssh-keygen", "-l", "-f", dir.path("kh")});
  CHECK(shown.output.find(fingerprint(key.blob)) != std::string::npos);
}

TEST_CASE("comments, damaged lines and unknown marks are no entries; lines are counted") {
  const HostKey key = make_key("ssh-ed25519", "one");
  const std::string text = "# comment\n\nnode1 ssh-ed25519 not-base64\nnode1 ssh-rsa " + base64_encode(key.blob) +
                           "\n@something-new " + line_of("node1", key) + "node1\n|1|x|y ssh-ed25519 AAAA\n" +
                           line_of("node1", key);
  const std::vector<KnownHost> found = find_known_hosts(text, "/f", "node1");
  REQUIRE(found.size() == 1);
  CHECK(found[0].line == 8);
  CHECK(found[0].file == "/f");
  CHECK(found[0].as == KnownAs::kHost);
}

TEST_CASE("the key of a certificate authority answers for hosts, and is the key of none") {
  const HostKey ca = make_key("ssh-ed25519", "ca");
  const HostKey host = make_key("ecdsa-sha2-nistp256", "host");
  const std::string text = line_of("*", host) + "@cert-authority " + line_of("*.cluster,!gate.cluster", ca);
  const std::vector<KnownHost> known = find_known_hosts(text, "/f", "n1.cluster");
  REQUIRE(find_authority(known) != nullptr);
  CHECK(certified_by(*find_authority(known)) == "/f:2 has a @cert-authority for it, which only ssh can check");
  CHECK(find_authority(find_known_hosts(text, "/f", "gate.cluster")) == nullptr);
  CHECK(find_authority(find_known_hosts("@revoked " + line_of("*", ca), "/f", "n1.cluster")) == nullptr);
  CHECK(check_host_key(known, ca).verdict == HostKeyVerdict::kUnknown);
  CHECK(host_key_algorithms("", known) == "ecdsa-sha2-nistp256");
}

TEST_CASE("a key is known, unknown, changed or revoked") {
  const HostKey one = make_key("ssh-ed25519", "one");
  const HostKey two = make_key("ssh-ed25519", "two");
  const HostKey rsa = make_key("ssh-rsa", "r");
  const auto verdict = [](const std::string& text, const HostKey& key) {
    return check_host_key(find_known_hosts(text, "f", "n"), key).verdict;
  };
  CHECK(verdict("", one) == HostKeyVerdict::kUnknown);
  CHECK(verdict(line_of("n", rsa), one) == HostKeyVerdict::kUnknown);
  CHECK(verdict(line_of("n", one), one) == HostKeyVerdict::kKnown);
  CHECK(verdict(line_of("n", two) + line_of("n", one), one) == HostKeyVerdict::kKnown);
  CHECK(verdict(line_of("n", rsa) + line_of("n", two), one) == HostKeyVerdict::kChanged);
  CHECK(verdict(line_of("n", one) + "@revoked " + line_of("*", one), one) == HostKeyVerdict::kRevoked);
}

TEST_CASE("only algorithms of known types are asked for, RSA last") {
  const std::string text = line_of("n", make_key("ssh-rsa", "r")) + line_of("n", make_key("ssh-ed25519", "e")) +
                           "@revoked " + line_of("n", make_key("ecdsa-sha2-nistp256", "x"));
  const std::vector<KnownHost> known = find_known_hosts(text, "f", "n");
  CHECK(host_key_algorithms("", known) == "ssh-ed25519,rsa-sha2-512,rsa-sha2-256,ssh-rsa");
  CHECK(host_key_algorithms("", {}).starts_with("ssh-ed25519,ecdsa-sha2-nistp256,"));
}

TEST_CASE("the user's host key algorithms stay in their order, without those for certificates") {
  const std::string wanted =
      "ssh-ed25519-cert-v01@openssh.com,ecdsa-sha2-nistp256-cert-v01@openssh.com,rsa-sha2-512,ssh-ed25519";
  const auto known = [](const char* type) { return find_known_hosts(line_of("n", make_key(type, "k")), "f", "n"); };
  CHECK(host_key_algorithms(wanted, {}) == "rsa-sha2-512,ssh-ed25519");
  CHECK(host_key_algorithms(wanted, known("ssh-rsa")) == "rsa-sha2-512");
  CHECK(host_key_algorithms(wanted, known("ecdsa-sha2-nistp256")).empty());
  CHECK(host_key_algorithms("", known("sk-ssh-ed25519@openssh.com")).empty());
}

TEST_CASE("an RSA host key of fewer bits than the user asks for is refused, known or not") {
  const HostKey rsa{"ssh-rsa",
                    wire("ssh-rsa") + wire("\1") + wire(std::string(1, '\0') + "\x7f" + std::string(7, 'n'))};
  CHECK(rsa_bits(rsa) == 63);
  CHECK(rsa_bits(make_key("ssh-ed25519", "e")) == 0);
  CHECK(rsa_bits(make_key("ssh-rsa", "cut off")) == 0);
  SshHostConfig config;
  config.hostname = "n";
  const std::vector<KnownHost> known = find_known_hosts(line_of("n", rsa), "f", "n");
  config.required_rsa_bits = 63;
  CHECK(rule_on_host_key(config, "try: ssh n true", known, rsa).ok());
  config.required_rsa_bits = 64;
  const auto refused = rule_on_host_key(config, "try: ssh n true", known, rsa);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message().find("has 63 bits, and RequiredRSASize asks for 64") != std::string::npos);
}

TEST_CASE("an alias replaces name and port in known_hosts, else a port off 22 is part of the name") {
  SshHostConfig config;
  config.hostname = "Node1";
  CHECK(known_hosts_name(config) == "node1");
  config.port = 2222;
  CHECK(known_hosts_name(config) == "[node1]:2222");
  config.host_key_alias = "cluster";
  CHECK(known_hosts_name(config) == "cluster");
}

TEST_CASE("off port 22 a key is known by the name without the port as well, unless the port has lines of its own") {
  const test::TempDir dir;
  const HostKey one = make_key("ssh-ed25519", "one");
  const HostKey two = make_key("ssh-ed25519", "two");
  const HostKey rsa = make_key("ssh-rsa", "r");
  SshHostConfig config;
  config.hostname = "N";
  config.port = 2222;
  config.user_known_hosts = {dir.path("kh")};
  const auto known = [&](const std::string& text) {
    test::write_file(dir.path("kh"), text);
    return load_known_hosts(config);
  };
  const auto verdict = [&](const std::string& text) { return check_host_key(known(text), one).verdict; };
  CHECK(verdict(line_of("n", one)) == HostKeyVerdict::kKnown);
  CHECK(verdict(line_of("n", two)) == HostKeyVerdict::kUnknown);  // another machine may be behind the port
  CHECK(verdict("@revoked " + line_of("n", one)) == HostKeyVerdict::kRevoked);
  CHECK(verdict(line_of("n", one) + line_of("[n]:2222", two)) == HostKeyVerdict::kChanged);
  CHECK(verdict(line_of("n", one) + line_of("[n]:2222", rsa)) == HostKeyVerdict::kKnown);
  CHECK(verdict(line_of("n", two) + line_of("[n]:2222", one)) == HostKeyVerdict::kKnown);
  CHECK(verdict(line_of("[n]:2200", one)) == HostKeyVerdict::kUnknown);
  CHECK(host_key_algorithms("", known(line_of("n", one))) == "ssh-ed25519");
  CHECK(host_key_algorithms("ssh-ed25519,ssh-rsa", known(line_of("n", one) + line_of("[n]:2222", rsa))) == "ssh-rsa");
  CHECK(find_authority(known("@cert-authority " + line_of("n", two))) != nullptr);
  config.host_key_alias = "alias";
  CHECK(verdict(line_of("n", one)) == HostKeyVerdict::kUnknown);
  config.host_key_alias = "";
  config.port = 22;
  CHECK(known(line_of("n", one)).size() == 1);
}

TEST_CASE("unknown keys are judged by the policy, changed ones are refused under every policy") {
  const HostKey one = make_key("ssh-ed25519", "one");
  const HostKey two = make_key("ssh-ed25519", "two");
  SshHostConfig config;
  config.hostname = "n";
  config.user_known_hosts = {"/kh"};
  const auto refused = rule_on_host_key(config, "try: ssh n true", {}, one);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message().find(fingerprint(one.blob)) != std::string::npos);
  CHECK(refused.error().message().find("to check and accept it, try: ssh n true, or set") != std::string::npos);
  config.host_key_policy = HostKeyPolicy::kAcceptNew;
  CHECK(rule_on_host_key(config, "try: ssh n true", {}, one).value().remember);
  config.host_key_policy = HostKeyPolicy::kOff;
  const auto accepted = rule_on_host_key(config, "try: ssh n true", {}, one);
  CHECK(!accepted.value().remember);
  CHECK(!accepted.value().notice.empty());
  const auto changed =
      rule_on_host_key(config, "try: ssh n true", find_known_hosts("\n" + line_of("n", two), "/kh", "n"), one);
  REQUIRE(!changed.ok());
  CHECK(changed.error().message().find("IDENTIFICATION HAS CHANGED") != std::string::npos);
  CHECK(changed.error().message().find("/kh:2 ") != std::string::npos);
  CHECK(changed.error().message().find("ssh-keygen -f '/kh' -R 'n'") != std::string::npos);
  CHECK(changed.error().message().find('\n') == std::string::npos);
}

TEST_CASE("a new key is appended to the first file, plain or hashed, after a line that was left open") {
  const test::TempDir dir;
  const HostKey key = make_key("ssh-ed25519", "one");
  SshHostConfig config;
  config.hostname = "n";
  config.user_known_hosts = {dir.path("new/kh")};
  REQUIRE(remember_host_key(config, key).ok());
  CHECK(test::read_file(dir.path("new/kh")) == line_of("n", key));
  test::write_file(dir.path("new/kh"), "x y z");
  config.hash_known_hosts = true;
  REQUIRE(remember_host_key(config, key).ok());
  const std::string text = test::read_file(dir.path("new/kh"));
  CHECK(text.starts_with("x y z\n|1|"));
  CHECK(check_host_key(load_known_hosts(config), key).verdict == HostKeyVerdict::kKnown);
  config.user_known_hosts = {"/proc/no/such/kh"};
  CHECK(!remember_host_key(config, key).ok());
}

TEST_CASE("a disk that is full in the middle of a host key leaves no part of it") {
  const test::TempDir dir;
  const HostKey key = make_key("ssh-ed25519", "one");
  SshHostConfig config;
  config.hostname = "n";
  config.user_known_hosts = {dir.path("kh")};
  test::write_file(dir.path("kh"), "others\n");
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{40, usual.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  const auto remembered = remember_host_key(config, key);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
  ::signal(SIGXFSZ, old);
  REQUIRE_FALSE(remembered.ok());
  CHECK(remembered.error().sys_errno() == EFBIG);
  CHECK(test::read_file(dir.path("kh")) == "others\n");
}

TEST_CASE("kinds and passphrases of key files are seen without the passphrase") {
  const test::TempDir dir;
  struct Row {
    const char* kind;
    const char* passphrase;
    const char* format;
    const char* type;
  };
  for (const Row& row :
       {Row{"ed25519", "", "RFC4716", "ssh-ed25519"}, Row{"ed25519", "secret", "RFC4716", "ssh-ed25519"},
        Row{"ecdsa", "", "RFC4716", "ecdsa-sha2-nistp256"}, Row{"rsa", "", "PEM", "ssh-rsa"},
        Row{"rsa", "secret", "PEM", "ssh-rsa"}, Row{"ecdsa", "", "PKCS8", "ecdsa-sha2-nistp256"}}) {
    const std::string path = dir.path(std::string(row.kind) + row.passphrase + row.format);
    const test::Ran made =
        test::run_program({"ssh-keygen", "-q", "-t", row.kind, "-N", row.passphrase, "-m", row.format, "-f", path});
    if (made.status != 0) {
      MESSAGE("SKIPPED no ssh-keygen");
      return;
    }
    const auto key = read_key_file(path);
    REQUIRE_MESSAGE(key.ok(), path);
    CHECK_MESSAGE(key.value().type == row.type, path);
    CHECK_MESSAGE(key.value().is_encrypted == (*row.passphrase != '\0'), path);
    CHECK_MESSAGE(key_type_of_blob(key.value().public_blob) == row.type, path);
  }
}

TEST_CASE("an identity file may be a public key, or be missing beside its public half") {
  const test::TempDir dir;
  const std::string path = dir.path("id");
  if (test::run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path}).status != 0) {
    MESSAGE("SKIPPED no ssh-keygen");
    return;
  }
  const KeyFile whole = read_key_file(path).value();
  CHECK(!whole.is_public);
  ::chmod((path + ".pub").c_str(), 0644);
  const KeyFile half = read_key_file(path + ".pub").value();
  CHECK(half.is_public);
  CHECK(half.public_blob == whole.public_blob);
  ::unlink(path.c_str());
  const KeyFile beside = read_key_file(path).value();
  CHECK(beside.is_public);
  CHECK(beside.path == path);
  CHECK(beside.public_blob == whole.public_blob);
}

TEST_CASE("key files that ssh would not use are refused with a reason") {
  const test::TempDir dir;
  CHECK(read_key_file(dir.path("none")).error().code() == Code::kNotFound);
  test::write_file(dir.path("text"), "hello");
  CHECK(read_key_file(dir.path("text")).error().message() == "not a private key");
  test::write_file(dir.path("open"), "hello", 0644);
  CHECK(read_key_file(dir.path("open")).error().message().find("chmod 600") != std::string::npos);
  CHECK(!inspect_key("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n").ok());
  CHECK(!inspect_key("-----BEGIN OPENSSH PRIVATE KEY-----").ok());
  CHECK(!inspect_key("-----END x -----BEGIN OPENSSH PRIVATE KEY-----\n").ok());
}

TEST_CASE("base64 is decoded whole or not at all") {
  CHECK(base64_decode("aGk=") == "hi");
  CHECK(base64_decode("") == "");
  CHECK(!base64_decode("aGk").has_value());
  CHECK(!base64_decode("a Gk").has_value());
  CHECK(!base64_decode("a*k=").has_value());
  CHECK(base64_encode("hi") == "aGk=");
  CHECK(key_type_of_blob(std::string("\xff\xff\xff\xff", 4) + "abc").empty());
}

}  // namespace

}  // namespace hvd::launch::ssh_pure_test

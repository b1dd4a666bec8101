#include "launcher/ssh/key_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <sstream>

#include "launcher/ssh/base64.h"
#include "launcher/ssh/known_hosts.h"
#include "launcher/ssh/ssh_wire.h"
#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

constexpr off_t kMaxKeyFile = 64 * 1024;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Returns the base64 between the first and the last "-----" line.
std::optional<std::string> armoured(std::string_view text) {
  const auto begin = text.find('\n', text.find("-----BEGIN"));
  const auto end = text.find("-----END");
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) {
    return std::nullopt;
  }
  std::string base64;
  for (const char c : text.substr(begin, end - begin)) {
    if (c != '\n' && c != '\r') {
      base64 += c;
    }
  }
  return base64_decode(base64);
}

// The layout is that of OpenSSH's PROTOCOL.key: magic, cipher, kdf, kdf options, number of keys, public blob, private
// part.
Result<KeyFile> inspect_openssh(std::string_view text) {
  static constexpr std::string_view kMagic("openssh-key-v1\0", 15);
  const std::optional<std::string> bytes = armoured(text);
  if (!bytes || !bytes->starts_with(kMagic)) {
    return Error(Code::kInvalid, "not a readable OpenSSH private key");
  }
  WireReader in(std::string_view(*bytes).substr(kMagic.size()));
  KeyFile key;
  key.is_encrypted = in.text() != "none";
  in.text();
  in.text();
  in.number();
  key.public_blob = in.text();
  key.type = key_type_of_blob(key.public_blob);
  if (!in.ok() || key.type.empty()) {
    return Error(Code::kInvalid, "not a readable OpenSSH private key");
  }
  return key;
}

// Returns the key of a line such as "ssh-ed25519 AAAA... comment".
std::string blob_of_pub_file(const std::string& text) {
  std::istringstream words(text);
  std::string type;
  std::string base64;
  words >> type >> base64;
  return base64_decode(base64).value_or("");
}

// Returns the public half of IdentityFile `path`, read from `file`. Without one the error is `why`.
Result<KeyFile> public_half(const std::string& path, const std::string& file, const Error& why) {
  KeyFile key;
  key.path = path;
  key.public_blob = blob_of_pub_file(text_of_file(file));
  key.type = key_type_of_blob(key.public_blob);
  key.is_public = true;
  return key.type.empty() ? Result<KeyFile>(why) : Result<KeyFile>(std::move(key));
}

}  // namespace

Result<KeyFile> inspect_key(std::string_view text) {
  if (contains(text, "-----BEGIN OPENSSH PRIVATE KEY-----")) {
    return inspect_openssh(text);
  }
  if (!contains(text, "-----BEGIN ") || !contains(text, "PRIVATE KEY-----")) {
    return Error(Code::kInvalid, "not a private key");
  }
  KeyFile key;
  key.type = contains(text, "BEGIN RSA") ? "ssh-rsa" : "pem";
  key.is_encrypted = contains(text, "BEGIN ENCRYPTED") || contains(text, "4,ENCRYPTED");
  return key;
}

Result<KeyFile> read_key_file(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return public_half(path, path + ".pub", Error(Code::kNotFound, "no such file"));
  }
  if (!S_ISREG(info.st_mode) || info.st_size > kMaxKeyFile) {
    return Error(Code::kInvalid, "not a private key");
  }
  if (auto half = public_half(path, path, Error(Code::kNotFound, "no public key")); half.ok()) {
    return half;
  }
  if (info.st_uid == ::getuid() && (info.st_mode & 077) != 0) {
    return Error(Code::kInvalid, "others may read it; try: chmod 600 " + path);
  }
  if (::access(path.c_str(), R_OK) != 0) {
    return Error(Code::kInvalid, "not readable");
  }
  std::string text = text_of_file(path);
  HVD_TRY_ASSIGN(KeyFile key, inspect_key(text));
  key.path = path;
  key.text = std::move(text);
  if (key.public_blob.empty()) {
    key.public_blob = blob_of_pub_file(text_of_file(path + ".pub"));
    const std::string type = key_type_of_blob(key.public_blob);
    key.type = type.empty() ? key.type : type;
  }
  return key;
}

}  // namespace hvd::launch

// A private-key file, looked at before it is used: what kind of key, whether a passphrase protects it. libssh2 answers
// both questions with the same vague failure. Pure, but for the one function that reads the file.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd::launch {

struct KeyFile {
  std::string path;
  std::string text;         // the file's content
  std::string type;         // "ssh-ed25519"; "pem" when the format does not tell without the passphrase
  std::string public_blob;  // empty when unknown; else what ssh-agent would list
  bool is_encrypted = false;
  bool is_public = false;  // only its public half is here: it names a key of ssh-agent's

  [[nodiscard]] bool is_rsa() const { return type == "ssh-rsa"; }
};

// Fails for text that is no private key in OpenSSH's or PEM form.
Result<KeyFile> inspect_key(std::string_view text);

// Reads PATH and, for the public half, PATH.pub. As ssh does it PATH may be a public key itself, or may be missing
// beside PATH.pub. Refuses what ssh refuses: a private key that others may read. The messages are short reasons ("no
// such file"), meant to follow the path.
Result<KeyFile> read_key_file(const std::string& path);

}  // namespace hvd::launch

// KeyFile is a private-key file, examined before it is used: which kind of key it has, and whether a passphrase
// protects it. libssh2 reports both problems with one vague error. All of it is pure, except the function that reads
// the file.
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

// Reads PATH and, for the public half, PATH.pub. As with ssh, PATH may be a public key itself, or may be missing when
// PATH.pub exists. A private key that others may read is refused, as ssh does. The messages are short reasons ("no such
// file") that follow the path.
Result<KeyFile> read_key_file(const std::string& path);

}  // namespace hvd::launch

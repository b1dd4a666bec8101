#include "runtime/rendezvous/crypto.h"

#include <errno.h>
#include <sys/random.h>

#include <openssl/evp.h>

#include "runtime/rendezvous/crypto_free.h"

namespace hvd {
namespace {

using Key = std::unique_ptr<EVP_PKEY, CryptoFree>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, CryptoFree>;

// Made once and never freed, because static objects elsewhere may still use it while the process exits.
OSSL_LIB_CTX* library() {
  static OSSL_LIB_CTX* const own = OSSL_LIB_CTX_new();
  return own;
}

Error failed(const char* what) {
  return {Code::kSystem, std::string("libcrypto cannot ") + what};
}

// The pieces that we make are far shorter than INT_MAX.
int as_int(std::size_t size) {
  return static_cast<int>(size);
}

Result<Key> private_key_of(const std::array<std::uint8_t, kShareBytes>& bytes) {
  Key key(EVP_PKEY_new_raw_private_key_ex(library(), "X25519", nullptr, bytes.data(), bytes.size()));
  if (!key) {
    return failed("make a key for X25519");
  }
  return key;
}

}  // namespace

void init_lean_crypto() {
  ::OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ADD_ALL_CIPHERS | OPENSSL_INIT_NO_ADD_ALL_DIGESTS,
                        nullptr);
}

Result<void> fill_random(MutableBytes bytes) {
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (got < 0 && errno != EINTR) {
      return Error::from_errno("getrandom");
    }
    filled += got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  return {};
}

Result<KeyPair> KeyPair::make() {
  std::array<std::uint8_t, kShareBytes> bytes{};
  HVD_TRY(fill_random(bytes));
  return of(bytes);
}

Result<KeyPair> KeyPair::of(const std::array<std::uint8_t, kShareBytes>& private_key) {
  KeyPair pair;
  pair.private_ = private_key;
  HVD_TRY_ASSIGN(const Key key, private_key_of(private_key));
  std::size_t size = pair.share_.size();
  if (EVP_PKEY_get_raw_public_key(key.get(), pair.share_.data(), &size) != 1 || size != pair.share_.size()) {
    return failed("tell a key's public part");
  }
  return pair;
}

Result<SharedKey> KeyPair::agree(const KeyShare& other) const {
  HVD_TRY_ASSIGN(const Key own, private_key_of(private_));
  const Key peer(EVP_PKEY_new_raw_public_key_ex(library(), "X25519", nullptr, other.data(), other.size()));
  const KeyContext context(EVP_PKEY_CTX_new_from_pkey(library(), own.get(), nullptr));
  if (!peer || !context || EVP_PKEY_derive_init(context.get()) != 1) {
    return failed("prepare X25519");
  }
  SharedKey shared{};
  std::size_t size = shared.size();
  if (EVP_PKEY_derive_set_peer(context.get(), peer.get()) != 1 ||
      EVP_PKEY_derive(context.get(), shared.data(), &size) != 1 || size != shared.size()) {
    return Error(Code::kAuth, "the other end's share of the key is none that can be used");
  }
  return shared;
}

struct Aead::Contexts {
  std::unique_ptr<EVP_CIPHER_CTX, CryptoFree> sealing;
  std::unique_ptr<EVP_CIPHER_CTX, CryptoFree> opening;
};

Aead::Aead(std::unique_ptr<Contexts> contexts) : contexts_(std::move(contexts)) {}
Aead::Aead(Aead&&) noexcept = default;
Aead& Aead::operator=(Aead&&) noexcept = default;
Aead::~Aead() = default;

Result<Aead> Aead::create(const CipherKey& key) {
  static EVP_CIPHER* const cipher = EVP_CIPHER_fetch(library(), "AES-256-GCM", nullptr);
  auto contexts = std::make_unique<Contexts>();
  contexts->sealing.reset(EVP_CIPHER_CTX_new());
  contexts->opening.reset(EVP_CIPHER_CTX_new());
  if (cipher == nullptr || !contexts->sealing || !contexts->opening ||
      EVP_EncryptInit_ex2(contexts->sealing.get(), cipher, key.data(), nullptr, nullptr) != 1 ||
      EVP_DecryptInit_ex2(contexts->opening.get(), cipher, key.data(), nullptr, nullptr) != 1) {
    return failed("prepare AES-256-GCM");
  }
  return Aead(std::move(contexts));
}

Result<void> Aead::seal(const CipherNonce& nonce, Bytes header, std::span<const Bytes> plain, std::uint8_t* out) {
  EVP_CIPHER_CTX* const context = contexts_->sealing.get();
  int size = 0;
  int rest = 0;
  if (EVP_EncryptInit_ex2(context, nullptr, nullptr, nonce.data(), nullptr) != 1 ||
      EVP_EncryptUpdate(context, nullptr, &size, header.data(), as_int(header.size())) != 1) {
    return failed("encrypt");
  }
  for (const Bytes part : plain) {
    if (EVP_EncryptUpdate(context, out, &size, part.data(), as_int(part.size())) != 1) {
      return failed("encrypt");
    }
    out += part.size();
  }
  if (EVP_EncryptFinal_ex(context, out, &rest) != 1 ||
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, as_int(kTagBytes), out) != 1) {
    return failed("encrypt");
  }
  return {};
}

Result<void> Aead::open(const CipherNonce& nonce, Bytes header, MutableBytes sealed) {
  if (sealed.size() < kTagBytes) {
    return Error(Code::kAuth, "what came is shorter than its proof");
  }
  EVP_CIPHER_CTX* const context = contexts_->opening.get();
  const MutableBytes text = sealed.first(sealed.size() - kTagBytes);
  int size = 0;
  if (EVP_DecryptInit_ex2(context, nullptr, nullptr, nonce.data(), nullptr) != 1 ||
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, as_int(kTagBytes), sealed.data() + text.size()) != 1 ||
      EVP_DecryptUpdate(context, nullptr, &size, header.data(), as_int(header.size())) != 1 ||
      EVP_DecryptUpdate(context, text.data(), &size, text.data(), as_int(text.size())) != 1) {
    return failed("decrypt");
  }
  std::array<std::uint8_t, kTagBytes> rest{};
  if (EVP_DecryptFinal_ex(context, rest.data(), &size) != 1) {
    return Error(Code::kAuth, "what came was not sent so by the other end");
  }
  return {};
}

}  // namespace hvd

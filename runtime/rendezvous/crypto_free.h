// CryptoFree gives back what libcrypto has made, so that a std::unique_ptr can own it. It is a type of a header because
// structs that other files may hold own such pointers too.
#pragma once

#include <openssl/evp.h>

namespace hvd {

struct CryptoFree {
  void operator()(OSSL_LIB_CTX* library) const { OSSL_LIB_CTX_free(library); }
  void operator()(EVP_CIPHER* cipher) const { EVP_CIPHER_free(cipher); }
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};

}  // namespace hvd

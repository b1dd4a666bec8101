# The ssh transport; without libssh2 a transport that says what to install.
find_package(PkgConfig)
if(HVD_WITH_SSH AND PKG_CONFIG_FOUND)
  pkg_check_modules(LIBSSH2 IMPORTED_TARGET GLOBAL libssh2)
endif()
if(HVD_WITH_SSH AND LIBSSH2_FOUND)
  hvd_layer(hvd_transport_ssh
    SOURCES agent_push.cpp base64.cpp handshake_slots.cpp host_key_policy.cpp key_file.cpp known_hosts.cpp
            remote_errors.cpp resolver.cpp ssh.cpp ssh_config.cpp ssh_login.cpp ssh_query.cpp ssh_reach.cpp ssh_session.cpp ssh_stream.cpp
            tcp_dial.cpp
    DEPENDS hvd_base PkgConfig::LIBSSH2 OpenSSL::Crypto Threads::Threads)
else()
  hvd_layer(hvd_transport_ssh SOURCES no_ssh.cpp DEPENDS hvd_base)
endif()

# The ssh transport; without libssh2 it runs the system's ssh.
find_package(PkgConfig)
if(HVD_WITH_SSH AND PKG_CONFIG_FOUND)
  pkg_check_modules(LIBSSH2 IMPORTED_TARGET GLOBAL libssh2)
endif()
if(HVD_WITH_SSH AND LIBSSH2_FOUND)
  hvd_layer(hvd_transport_ssh
    SOURCES base64.cpp host_key_policy.cpp key_agent.cpp key_file.cpp known_hosts.cpp ssh.cpp ssh_intake.cpp ssh_login.cpp
            ssh_query.cpp ssh_reach.cpp ssh_reach_words.cpp ssh_session.cpp ssh_stream.cpp ssh_stream_end.cpp tcp_dial.cpp
    DEPENDS hvd_transport_base PkgConfig::LIBSSH2)
else()
  hvd_layer(hvd_transport_ssh SOURCES no_ssh.cpp DEPENDS hvd_transport_base)
endif()

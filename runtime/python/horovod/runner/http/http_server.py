"""Names of Horovod's servers, by which its ranks find each other. Ours find each other through hvdrun."""

from horovod.runner.common._absent import absent_class

KVStoreServer = absent_class("horovod.runner.http.http_server.KVStoreServer")
RendezvousServer = absent_class("horovod.runner.http.http_server.RendezvousServer")

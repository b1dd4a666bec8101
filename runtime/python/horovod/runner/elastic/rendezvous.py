"""Names of Horovod's module horovod.runner.elastic.rendezvous; the ranks of an elastic job meet again through hvdrun."""

from horovod.runner.common._absent import absent_class, absent_function

ElasticRendezvousHandler = absent_class("horovod.runner.elastic.rendezvous.ElasticRendezvousHandler")
create_rendezvous_handler = absent_function("horovod.runner.elastic.rendezvous.create_rendezvous_handler")

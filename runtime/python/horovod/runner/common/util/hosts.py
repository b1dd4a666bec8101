"""Names of Horovod's module horovod.runner.common.util.hosts; what they stand for is hvdrun's work here."""

from horovod.runner.common._absent import absent_class, absent_function

HostInfo = absent_class("horovod.runner.common.util.hosts.HostInfo")
SlotInfo = absent_class("horovod.runner.common.util.hosts.SlotInfo")
parse_hosts = absent_function("horovod.runner.common.util.hosts.parse_hosts")
parse_host_files = absent_function("horovod.runner.common.util.hosts.parse_host_files")
parse_hosts_and_slots = absent_function("horovod.runner.common.util.hosts.parse_hosts_and_slots")
get_host_assignments = absent_function("horovod.runner.common.util.hosts.get_host_assignments")

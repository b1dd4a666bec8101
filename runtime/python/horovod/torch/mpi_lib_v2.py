"""This is the name of Horovod's compiled module, for scripts that import it. Nothing is compiled here: libhvd is called
through its C interface (horovod.common), and the operations are in horovod.torch.mpi_ops."""

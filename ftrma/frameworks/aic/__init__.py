"""Asynchronous iterative computation: workers that never wait, saved by snapshots that stop nobody.

The front `ftrma.aic` imports the modules, not this package, since the command line reads it.

Source: T. Zhou, L. Gao, X. Guan, "A Fault-Tolerant Distributed Framework for Asynchronous Iterative
Computations", IEEE TPDS 2021; Y. Zhang et al., "Maiter", IEEE TPDS 2014; H. Yun et al., "NOMAD",
PVLDB 2014.
"""

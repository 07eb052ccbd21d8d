"""Asynchronous iterative computation: workers that never wait, saved by snapshots that stop nobody.

This file imports nothing, since the command line reads it. `ftrma.aic` imports the modules.

Source: T. Zhou, L. Gao, X. Guan, "A Fault-Tolerant Distributed Framework for Asynchronous Iterative
Computations", IEEE TPDS 2021; Y. Zhang et al., "Maiter", IEEE TPDS 2014; H. Yun et al., "NOMAD",
PVLDB 2014.
"""

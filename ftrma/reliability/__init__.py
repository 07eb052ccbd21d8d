"""The probability of a catastrophic failure on a given machine, and the cost of protection.

A failure is catastrophic if a group loses more members than it has checksum ranks: then the lost
memory cannot be rebuilt. This package computes P_cf, the probability of that per day, by equations
(7) to (9) of Besta & Hoefler (sections 5 and 7.1), by exact combinatorics, and by simulation.

    machine        failure domains and how often they fail, from TOML
    distribution   P_j(x): failures per day that hit x elements of a level at once
    history        P_j(x) fitted to a record of failures
    model          P_cf
    simulate       P_cf again, by drawing failures; shares no code with the model
    provision      the search behind ``ftrma plan``
    report, plots  tables and figures
    command        ``ftrma reliability`` and ``ftrma plan``

A running job imports nothing from this package; scipy and matplotlib are imported only where they
are used.

**Interpretations.** The printed equations leave these points open:

1. P_j(x) is printed as a density with the unit "failures per day". It is summed over whole numbers
   x as eq. (7) demands, so it is taken as the number of events per day that hit exactly x elements
   of level j, and P_cf as the number of catastrophic events per day (a bound on the probability
   of one, reported as at most 1).
2. The coefficients printed for TSUBAME2.0 add up to 0.0011 failures per day; the 1962 crashes that
   they are derived from, in some two and a half years, are about two per day. The printed numbers
   are used as they are. Ratios between strategies do not depend on it much, absolute values do.
3. N counts the computing ranks; the checksum ranks come on top (|G| = N/g + m). If g does not
   divide N, |G| in eq. (8) is a fraction; the exact models take the groups as they are.
4. Eq. (6), read literally, says nothing for m = 1. Its text (no more than m members per element)
   and eq. (8) for m = 1 (any two elements) mean that members lie on different elements, and
   this is demanded here for every m. (``ftrma run`` puts up to m of them on one element where
   room is short; that is less safe and not computed.)
5. D in eq. (9) is D_j of eq. (8), and its upper limit N_j is H_j.
6. Eq. (8) adds up the pairs of elements, so it counts a failure of three members of a group
   three times, and passes 1 for many concurrent failures. It is computed as printed.
7. Eq. (8) for m > 1 is not printed. The same argument gives
   D_j C(|G|, m+1) C(H_j - m - 1, x - m - 1) / C(H_j, x).
8. D_j = ceil(H_j / |G|) does not depend on the number of groups: it supposes that groups which
   share one element share all (Figure 8), and that the job fills the machine. Where D_j steps up
   by one, P_cf does too: eq. (9) falls with |CH| over a sweep, but not from each |CH| to the next.

**The exact models** drop points 6 and 8. *aligned*: groups that share an element share all of them,
so there are min(g, floor(H_j / |G|)) sets of |G| elements; eq. (8) is an upper bound of this.
*scattered*: all g groups lie on elements drawn independently of each other; with several ranks per
element this is much more dangerous than eq. (8) says, since nearly every pair of elements is shared
by some group. A placement lies between them. `ftrma plan` trusts only the second.
"""

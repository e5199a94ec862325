"""The paper's propositions and its example, exact on finite processes.

`process` has the processes and what is logged of them, `values` their exact values, `transitive` the update of
equation 3, `draws` every draw of the sampler, `anchored` the fits of equations 5 to 10 and their fixed points,
`checks` and `counterexamples` what holds, and what it takes for it to hold.
"""

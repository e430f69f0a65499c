#!/bin/sh
# Every run behind docs/results, the tables that are kept of them, and what is made of those. Rerun it to resume.
set -e
study() {
    kept=$1
    shift
    case $kept in *-laptop) scale=laptop ;; *) scale=small ;; esac
    recipe=${kept%-laptop}
    mecheval sweep run "$recipe" --scale $scale "$@"
    mecheval keep "runs/$recipe-$scale" --out "docs/results/$kept"
}
study figure3
study figure4a --reuse runs/figure3-small
study figure7
study figure8 --reuse runs/figure7-small
study figure4b --reuse runs/figure3-small
study figure5 --reuse runs/figure3-small
study figure10
study figure11 --reuse runs/figure3-small --reuse runs/figure7-small
study figure12 --reuse runs/figure3-small --reuse runs/figure11-small
study emergence
study figure9 --reuse runs/figure3-small --reuse runs/figure7-small
study cost
study figure13
study grandparent
study figure1 --reuse runs/figure3-small --reuse runs/figure4a-small --reuse runs/figure7-small --reuse runs/figure8-small
study figure2 --reuse runs/figure3-small
study reverse
study figure3-laptop
study figure5-laptop --reuse runs/figure3-laptop
study figure7-laptop
study figure8-laptop --reuse runs/figure7-laptop
python docs/results/generate.py

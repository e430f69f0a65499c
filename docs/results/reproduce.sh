#!/bin/sh
# Every run behind docs/results, the tables that are kept of them, and what is made of those. Killed, it goes on.
set -e
small() {
    recipe=$1
    shift
    mecheval sweep "$recipe" --scale small "$@"
    mecheval keep "runs/$recipe-small" --out "docs/results/$recipe"
}
small figure3
small figure4a --reuse runs/figure3-small
small figure7
small figure8 --reuse runs/figure7-small
small figure4b --reuse runs/figure3-small
small figure5 --reuse runs/figure3-small
small figure10
small figure11 --reuse runs/figure3-small --reuse runs/figure7-small
small figure12 --reuse runs/figure3-small --reuse runs/figure11-small
small emergence
small figure9 --reuse runs/figure3-small --reuse runs/figure7-small
small cost
small figure13
small grandparent
mecheval sweep figure3 --scale laptop
mecheval keep runs/figure3-laptop --out docs/results/figure3-laptop
python docs/results/generate.py

"""Deploys over a fleet, played: coordinators and voters that die, links that are cut, calls that are lost or late."""

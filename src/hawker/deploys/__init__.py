"""Deploys: releases of apps, and the durable runs that bring an app's machines to one, or back."""
